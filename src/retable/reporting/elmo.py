"""What ELMo adds to a system (Peters et al. 2018, arXiv 1802.05365, table 1).

A study may say, under `elmo`, which system is which with ELMo beside its words: `elmo: {bilstm_skipgram: bilstm_elmo}`.
Published pairs are those of `references.yaml` whose names differ by " + ELMo".
"""

from collections.abc import Iterator, Mapping
from math import isnan, nan

import pandas as pd

from retable.errors import UsageError
from retable.metrics.intervals import mean_std
from retable.reporting.ablations import difference
from retable.reporting.fields import SPREAD, filled_table, span
from retable.reporting.glue import TITLES
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import CELL

METRICS = {"accuracy": "accuracy", "f1": "F1", "average_f1": "average F1", "matthews": "Matthews"}
METRICS |= {"pearson": "Pearson", "spearman": "Spearman"}
WITH_ELMO = " + ELMo"  # behind the name of a published system


def elmo_tables(
    pairs: Mapping[str, str], values: pd.DataFrame, references: pd.DataFrame
) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table, where there are pairs, with its rows: `values` are the runs, as `results.tidy` has them.

    UsageError for two systems that no task was run with.
    """
    if not pairs:
        return
    values = values[values["metric"].isin(METRICS) & values["split"].isin(["validation", "test"])]
    tested = values["task"].isin(values.loc[values["split"] == "test", "task"])
    values = values[(values["split"] == "test") | ~tested]
    measured: dict[tuple[str, ...], list[dict]] = {}
    for baseline, elmo in pairs.items():
        cells = values[values["system"].isin([baseline, elmo])].groupby(CELL[1:])
        shared = [(cell, part) for cell, part in cells if set(part["system"]) == {baseline, elmo}]
        if not shared:
            raise UsageError(f"elmo: {baseline} and {elmo} have no task in common in this study; add the cells of one")
        for cell, part in shared:
            measured.setdefault(cell, []).append(_measured(cell, part, baseline, elmo))
    ordered = sorted(measured, key=_place)
    rows = [row for cell in ordered for row in (*measured[cell], *_published(cell, references))]
    yield _table(pd.DataFrame(rows)), pd.DataFrame(rows)


def _place(cell: tuple[str, ...]) -> tuple:
    """By corpus, GLUE's tasks first and in their order."""
    corpus, task, _, metric = cell
    glue = [*TITLES]
    return corpus, glue.index((task, metric)) if (task, metric) in glue else len(glue), task, metric


def _measured(cell: tuple[str, ...], runs: pd.DataFrame, baseline: str, elmo: str) -> dict:
    facts: dict = dict(zip(CELL[1:], cell, strict=True)) | {"baseline": baseline, "elmo": elmo}
    for side, system in (("baseline", baseline), ("elmo", elmo)):
        own = runs[runs["system"] == system].sort_values("seed")
        facts[f"{side}_mean"], facts[f"{side}_std"] = mean_std(own["value"])
        facts[f"{side}_runs"] = " ".join(result.name for result in own["result"])
        facts[f"{side}_n"] = len(own)
    absolute = difference(runs, elmo, baseline)
    facts |= {"absolute": absolute.mean, "low": absolute.low, "high": absolute.high, "paired": absolute.paired}
    return facts | {"relative": _relative(facts["baseline_mean"], absolute.mean), "source": ""}


def _published(cell: tuple[str, ...], references: pd.DataFrame) -> list[dict]:
    """The published pairs on the task of `cell`. A tagger's task is its corpus; of another task the corpus only says
    what text the words were learnt from."""
    corpus, task, split, metric = cell
    own = references[(references["task"] == task) & (references["split"] == split) & (references["metric"] == metric)]
    if task == "tagging":
        own = own[own["corpus"] == corpus]
    scores = own.set_index("system")
    rows = []
    for elmo in scores.index[scores.index.str.endswith(WITH_ELMO)]:
        baseline = elmo.removesuffix(WITH_ELMO)
        before, after = scores.loc[baseline, "value"], scores.loc[elmo, "value"]
        facts = dict(zip(CELL[1:], cell, strict=True)) | {"baseline": baseline, "elmo": elmo}
        facts |= {"baseline_mean": before, "baseline_n": 0, "elmo_mean": after, "elmo_n": 0, "absolute": after - before}
        facts |= {"baseline_std": nan, "elmo_std": nan, "low": nan, "high": nan, "baseline_runs": "", "elmo_runs": ""}
        rows.append(facts | {"relative": _relative(before, after - before), "source": scores.loc[elmo, "source"]})
    return rows


def _relative(baseline: float, increase: float) -> float:
    """The share of the baseline's error, of what it lacks of 1, that is gone."""
    return increase / (1 - baseline) if baseline < 1 else nan


def _table(frame: pd.DataFrame) -> Table:
    """A row a task, metric and pair of systems, below it what was published."""
    columns = [Column(title, numeric=False) for title in ("Task", "Metric", "Split", "Baseline", "With ELMo")]
    columns += [Column("Runs"), Column("baseline", "Score"), Column("+ ELMo", "Score")]
    columns += [Column(title, "Increase") for title in ("absolute", "95 % interval", "relative, %")]
    columns.append(Column("Source", numeric=False))

    def row(cell: pd.Series) -> list[Value]:
        digits = 2 if cell["task"] == "tagging" else 1
        title, metric = TITLES.get((cell["task"], cell["metric"]), (cell["task"], METRICS[cell["metric"]]))
        names = [title, metric, cell["split"], cell["baseline"], cell["elmo"]]
        names.append(span(cell[["baseline_n", "elmo_n"]]) if cell["elmo_n"] else "")
        increase, low, high = (_points(cell[name], digits) for name in ("absolute", "low", "high"))
        return [
            *map(Value, names),
            *(_score(cell, side, digits) for side in ("baseline", "elmo")),
            Value(increase, bold=bool(cell["low"] * cell["high"] > 0)),
            Value(f"{low} to {high}" if low else ""),
            Value(_points(cell["relative"], 1)),
            Value(cell["source"]),
        ]

    panels = {str(corpus): [Row(row(cell)) for _, cell in part.iterrows()] for corpus, part in frame.groupby("corpus")}
    notes = [
        "Times 100, on test, or on validation where test has no labels. The relative increase is the share of the "
        "baseline's error, of what it lacks of 100, that is gone (Peters et al. 2018, table 1).",
        "The interval of the increase is Student's, at 95 %, over pairs of equal seeds, or Welch's where the seeds "
        "differ. Bold: it doesn't hold 0. Not corrected for the number of comparisons.",
        *["Rows without runs are published."] * bool((frame["elmo_n"] == 0).any()),
        SPREAD,
    ]
    return filled_table("elmo", "What ELMo adds", columns, panels, notes)


def _score(cell: pd.Series, side: str, digits: int) -> Value:
    spread = "" if isnan(cell[f"{side}_std"]) else f"{cell[f'{side}_std'] * 100:.{digits}f}"
    return Value(f"{cell[f'{side}_mean'] * 100:.{digits}f}", spread, runs=tuple(cell[f"{side}_runs"].split()))


def _points(value: float, digits: int) -> str:
    return "" if isnan(value) else f"{value * 100:+.{digits}f}"
