"""Label efficiency: a pretrained model against the same model trained from scratch, by number of labels.

A study may set these keys under `label_efficiency`:

    claim: Pretrained is better than from scratch, however few the labels (Howard and Ruder 2018, figure 3).
    pretrained: bert_pretrained
    scratch: bert
    metrics: {sentiment: accuracy}  # the test metric of each task

The name of a system that was fine-tuned with N labels ends with `_N_labels`: `bert_100_labels`,
`bert_pretrained_100_labels`.
"""

from collections.abc import Mapping
from math import isnan
from typing import Any

import pandas as pd

from retable.core.errors import UsageError
from retable.reporting.ablations import difference, judged, over_seeds
from retable.reporting.fields import span
from retable.reporting.figures import Figure, titled
from retable.reporting.lines import Look, Scale, line_panel
from retable.reporting.names import display_name
from retable.reporting.results import ORACLE

ASIDE = 1.03  # factor that shifts the points of the two systems apart, so that their intervals do not overlap


def scores_by_labels(settings: Mapping[str, Any], values: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task, corpus and number of labels; `values` is a frame from `results.tidy`.

    Scores are multiplied by 100. For each of the two systems, a row contains the runs, mean, std and interval over
    seeds. A row also contains the gain of pretrained over scratch with the gain's interval, the Bayes-optimal score,
    and the task's verdict and notes.

    Raises: UsageError: settings are invalid, or one system lacks runs for a number of labels that the other has.
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
                "study; add its cells, or remove the task"
            )
        for corpus, of_corpus in runs.groupby("corpus"):
            numbers = sorted(set(of_corpus["labels"]))
            pairs = [[f"{family}_{labels}_labels" for family in families] for labels in numbers]
            if missing := [name for pair in pairs for name in pair if name not in set(of_corpus["system"])]:
                raise UsageError(
                    f"label_efficiency: {missing[0]} has no test {metric} of {task} on {corpus}, but the other system "
                    "has one; add its cells, or remove those of the other system"
                )
            optimum = measured.loc[(measured["system"] == ORACLE) & (measured["corpus"] == corpus), "value"].mean()
            verdict, finding = judged({"better": "higher", "holds": pairs}, of_corpus, digits=1)
            for labels, pair in zip(numbers, pairs, strict=True):
                facts = {"corpus": corpus, "task": task, "metric": metric, "labels": labels}
                facts |= {"_pretrained": display_name(families[0]), "_scratch": display_name(families[1])}
                facts |= _compared(of_corpus, *pair) | {"bayes_optimal": optimum}
                notes = f"Claim: {settings['claim']}\n{task.capitalize()}: {finding}"
                rows.append(facts | {"verdict": verdict, "_notes": notes})
    return pd.DataFrame(rows)


def _compared(runs: pd.DataFrame, pretrained: str, scratch: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for role, system in (("scratch", scratch), ("pretrained", pretrained)):
        own = runs[runs["system"] == system].sort_values("seed")
        facts |= {f"{role}_{name}": value for name, value in over_seeds(own).items()}
    seeds = span([facts["scratch_n"], facts["pretrained_n"]])
    return facts | difference(runs, pretrained, scratch).facts | {"_seeds": seeds}


def label_efficiency_figures(settings: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus and task: score by number of labels, from rows of `scores_by_labels`.

    Each system has a line with intervals over seeds. The dashed line is the Bayes-optimal score.
    """
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
    x = Scale("training labels, log scale", min(labels) / 1.3, max(labels) * 1.3, True, labels.tolist(), ",")
    y = Scale.over(f"test {first['metric']} × 100", lines[["y", "low", "high"]], [value for _, value in bounds])
    figure = line_panel(lines, x, y, {"": Look(is_marked=True)}, bounds=bounds, has_bars=True)
    subtitle = "bars: 95 % intervals over seeds"
    return titled(figure, "Label efficiency", f"{first['task']}, corpus {first['corpus']}", subtitle)
