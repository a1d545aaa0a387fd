"""Label efficiency: a pretrained model beside the same one from scratch, by the number of labels.

A study may have, under `label_efficiency`:

    claim: Pretrained is better than from scratch, however few the labels (Howard and Ruder 2018, figure 3).
    pretrained: bert_pretrained
    scratch: bert
    metrics: {sentiment: accuracy}  # of each task, on test

What was fine-tuned with N labels has them in its system's name: bert_100_labels, bert_pretrained_100_labels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isnan
from typing import Any

import pandas as pd

from retable.errors import UsageError
from retable.metrics.intervals import mean_interval, mean_std
from retable.reporting.ablations import difference, interval_text, judged
from retable.reporting.fields import SPREAD, filled_table, span
from retable.reporting.figures import Figure
from retable.reporting.lines import Look, Scale, line_panel
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import ORACLE

METHOD = (
    "Test splits; all metrics times 100. Intervals are Student's, at 95 %, over seeds: of a difference over pairs of "
    "equal seeds where both systems have the same, else Welch's. The claim holds where the interval of each difference "
    "lies above 0, and does not where one lies below. Not corrected for the number of comparisons."
)
ASIDE = 1.03  # a factor of the labels, so that the intervals of two systems stand beside each other


def scores_by_labels(settings: Mapping[str, Any], values: pd.DataFrame) -> pd.DataFrame:
    """A row a task, corpus and number of labels, all times 100; `values` are those of `results.tidy`.

    Of each system there are its runs, mean, std and interval over seeds; then the difference of pretrained to scratch
    with its interval, the Bayes-optimal score, and of the task as a whole the verdict and the finding that tells it.
    UsageError for settings that are not as above, and for a system without runs with as many labels as the other has.
    """
    families = [settings["pretrained"], settings["scratch"]]
    values = values[values["split"] == "test"].assign(value=100 * values["value"])
    values = values.join(values["system"].str.extract(r"^(?P<family>.+)_(?P<labels>\d+)_labels$"))
    rows = []
    for task, metric in settings["metrics"].items():
        measured = values[(values["task"] == task) & (values["metric"] == metric)]
        runs = measured[measured["family"].isin(families)].astype({"labels": int})
        if runs.empty:
            raise UsageError(
                f"label_efficiency: no system such as {families[0]}_100_labels has a test {metric} of {task} in this "
                "study; add its cells, or leave the task out"
            )
        for corpus, of_corpus in runs.groupby("corpus"):
            numbers = sorted(set(of_corpus["labels"]))
            pairs = [[f"{family}_{labels}_labels" for family in families] for labels in numbers]
            if missing := [name for pair in pairs for name in pair if name not in set(of_corpus["system"])]:
                raise UsageError(
                    f"label_efficiency: {missing[0]} has no test {metric} of {task} on {corpus}, and the other system "
                    "has; add its cells, or leave the other's out"
                )
            optimum = measured.loc[(measured["system"] == ORACLE) & (measured["corpus"] == corpus), "value"].mean()
            verdict, finding = judged({"better": "higher", "holds": pairs}, of_corpus, digits=1)
            for labels, pair in zip(numbers, pairs, strict=True):
                facts = {"corpus": corpus, "task": task, "metric": metric, "labels": labels}
                facts |= _compared(of_corpus, *pair) | {"bayes_optimal": optimum}
                rows.append(facts | {"verdict": verdict, "finding": f"{task.capitalize()}: {finding}"})
    return pd.DataFrame(rows)


def _compared(runs: pd.DataFrame, pretrained: str, scratch: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for role, system in (("scratch", scratch), ("pretrained", pretrained)):
        own = runs[runs["system"] == system].sort_values("seed")
        mean, std = mean_std(own["value"])
        low, high = mean_interval(own["value"])
        ids = " ".join(result.name for result in own["result"])
        found = {"n": len(own), "mean": mean, "std": std, "ci_low": low, "ci_high": high, "runs": ids}
        facts |= {f"{role}_{name}": value for name, value in found.items()}
    less = difference(runs, pretrained, scratch)
    facts |= {"difference": less.mean, "difference_low": less.low, "difference_high": less.high, "paired": less.paired}
    return facts


def label_efficiency_tables(settings: Mapping[str, Any], rows: pd.DataFrame) -> Iterator[tuple[Table, pd.DataFrame]]:
    """A table a corpus, a panel a task; `rows` are those of `scores_by_labels`."""
    pretrained, scratch = settings["pretrained"], settings["scratch"]
    columns = [Column("Labels"), Column("Runs")]
    for group in (scratch, pretrained, f"{pretrained} less {scratch}"):
        columns += [Column(title, group) for title in ("mean", "95 % interval")]
    columns.append(Column("Bayes-optimal"))
    for corpus, part in rows.groupby("corpus"):
        tasks = part.groupby(["task", "metric"], sort=False)
        panels = {f"{task}, {metric}": [_row(row) for row in own.to_dict("records")] for (task, metric), own in tasks}
        notes = [f"Claim: {settings['claim']}", *dict.fromkeys(part["finding"]), METHOD, SPREAD]
        table = filled_table(f"label-efficiency-{corpus}", f"Label efficiency, {corpus}", columns, panels, notes)
        yield replace(table, panel="Task"), part.drop(columns="finding")


def _row(row: Mapping[str, Any]) -> Row:
    runs = pd.Series([row["scratch_n"], row["pretrained_n"]])
    values = [Value(f"{row['labels']:,}"), Value(span(runs))]
    for role in ("scratch", "pretrained"):
        mean, std, low, high, ids = (row[f"{role}_{name}"] for name in ("mean", "std", "ci_low", "ci_high", "runs"))
        values.append(Value(f"{mean:.1f}", "" if isnan(std) else f"{std:.1f}", runs=tuple(ids.split(" "))))
        values.append(Value(interval_text(low, high, 1)))
    values.append(Value(f"{row['difference']:+.1f}"))
    values.append(Value(interval_text(row["difference_low"], row["difference_high"], 1, signed=True)))
    return Row([*values, Value("" if isnan(row["bayes_optimal"]) else f"{row['bayes_optimal']:.1f}")])


def label_efficiency_figures(settings: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus and task of the score by the number of labels: a line a system with its intervals over seeds,
    and a dashed one at the Bayes-optimal score; `rows` are those of `scores_by_labels`."""
    return {f"{corpus}-{task}": _figure(settings, part) for (corpus, task), part in rows.groupby(["corpus", "task"])}


def _figure(settings: Mapping[str, Any], rows: pd.DataFrame) -> Figure:
    first = rows.iloc[0]
    parts = [
        pd.DataFrame({"x": rows["labels"] * aside, "y": rows[f"{role}_mean"], "system": settings[role], "variant": ""})
        .assign(low=rows[f"{role}_ci_low"], high=rows[f"{role}_ci_high"])
        for role, aside in (("scratch", 1 / ASIDE), ("pretrained", ASIDE))
    ]  # fmt: skip
    lines, labels = pd.concat(parts), rows["labels"]
    bounds = [] if isnan(first["bayes_optimal"]) else [("Bayes-optimal", first["bayes_optimal"])]
    x = Scale("labels to learn from, log scale", min(labels) / 1.3, max(labels) * 1.3, True, labels.tolist(), ",")
    y = Scale.over(f"test {first['metric']}, times 100", lines[["y", "low", "high"]], [value for _, value in bounds])
    figure = line_panel(lines, x, y, {"": Look(is_marked=True)}, bounds=bounds, has_bars=True)
    subtitle = "bars: 95 % intervals over seeds"
    return figure.properties(title={"text": f"{first['corpus']}: {first['task']}", "subtitle": subtitle})
