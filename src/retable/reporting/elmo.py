"""Gains from adding ELMo to a system (Peters et al. 2018, arXiv 1802.05365, table 1).

A study may map systems to their variants with ELMo, as in `elmo: {bilstm_skipgram: bilstm_elmo}`. Two systems of
`references.yaml` form a published pair if their names differ only by the suffix " + ELMo".
"""

from collections.abc import Mapping
from math import nan

import pandas as pd

from retable.core.errors import UsageError
from retable.metrics.intervals import mean_std
from retable.reporting.ablations import difference
from retable.reporting.fields import span
from retable.reporting.glue import TITLES
from retable.reporting.results import CELL

METRICS = {"accuracy": "accuracy", "f1": "F1", "average_f1": "average F1", "matthews": "Matthews"}
METRICS |= {"pearson": "Pearson", "spearman": "Spearman"}
WITH_ELMO = " + ELMo"  # suffix of the names of published systems


def elmo_rows(pairs: Mapping[str, str], values: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Return one row per task, metric and pair of systems, followed by the published pairs.

    Args:
        pairs: names of the variants with ELMo, by system.
        values: a frame from `results.tidy`.
        references: a frame from `results.read_references`.

    Raises: UsageError: the two systems of a pair have no task in common.
    """
    if not pairs:
        return pd.DataFrame()
    values = values[values["metric"].isin(METRICS) & values["split"].isin(["validation", "test"])]
    tested = values["task"].isin(values.loc[values["split"] == "test", "task"])
    values = values[(values["split"] == "test") | ~tested]
    measured: dict[tuple[str, ...], list[dict]] = {}
    for baseline, elmo in pairs.items():
        cells = values[values["system"].isin([baseline, elmo])].groupby(CELL[1:])
        shared = [(cell, part) for cell, part in cells if set(part["system"]) == {baseline, elmo}]
        if not shared:
            raise UsageError(
                f"elmo: {baseline} and {elmo} have no task in common in this study; run both of them on one task"
            )
        for cell, part in shared:
            measured.setdefault(cell, []).append(_measured(cell, part, baseline, elmo))
    ordered = sorted(measured, key=_place)
    return pd.DataFrame(_shown(row) for cell in ordered for row in (*measured[cell], *_published(cell, references)))


def _shown(row: dict) -> dict:
    task, metric = TITLES.get((row["task"], row["metric"]), (row["task"], METRICS[row["metric"]]))
    seeds = span([row["baseline_n"], row["elmo_n"]]) if row["elmo_n"] else ""
    facts = {"_task": task, "_metric": metric, "_seeds": seeds, "_digits": 2 if row["task"] == "tagging" else 1}
    return row | facts | {"_bold": bool(row["low"] * row["high"] > 0)}


def _place(cell: tuple[str, ...]) -> tuple:
    """Return a sort key: by corpus, then GLUE's tasks in their usual order, then other tasks."""
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
    """Return the published pairs on the task of `cell`.

    Published taggers must have the same corpus as `cell`. For other tasks the corpus does not matter, because it is
    only the text that the word vectors were trained on.
    """
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
    """Return the share of the baseline's error (1 − score) that the increase in score removes."""
    return increase / (1 - baseline) if baseline < 1 else nan
