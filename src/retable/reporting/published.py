"""Add published rows that were not run, training costs, notes and metric signatures to measured numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from retable.reporting.results import CELL, COLUMNS, ORACLE, Result
from retable.reporting.verdicts import ELSEWHERE, NOT_RUN

SCOREBOARD = "see docs/scoreboard.md"  # note on a published row that was run only in another study


def complete(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    trained: Iterable[Result],
    notes: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    """Add to averaged results the published rows that the study did not run, notes, and training FLOPs.

    A published row is added if it matches a measured row; `beside` in `references.yaml` defines which rows match. An
    added row has no mean and no runs. An added row has the published FLOPs, and a note with the reason why it was not
    run. If there is no such reason, the row was run in another study, and the note refers to the scoreboard, because no
    report depends on another study's results. The FLOPs of measured rows come from the metrics of `trained`.

    notes: texts by corpus and system, which precede a row's other notes.
    """
    measured = frame[frame["system"] != ORACLE]
    places = {(kind, _place(row, kind)) for kind in references["beside"].unique() for row in measured.itertuples()}
    shown = [(row.beside, _place(row, row.beside)) in places for row in references.itertuples()]
    others = references[shown]
    others = others.rename(columns={"value": "published"}).assign(n=0, runs="", protocol="")
    partly = set(zip(frame["system"], frame["corpus"], strict=True))  # systems that were run on another split or task
    reasons = ["" if (row.system, row.corpus) in partly else row.not_run or SCOREBOARD for row in others.itertuples()]
    others["verdict"] = [ELSEWHERE if reason == SCOREBOARD else NOT_RUN for reason in reasons]
    others["note"] = ["; ".join(filter(None, pair)) for pair in zip(reasons, others["note"], strict=True)]
    run = set(frame[CELL].itertuples(index=False, name=None))
    others = others[[cell not in run for cell in others[CELL].itertuples(index=False, name=None)]]
    flops = pd.DataFrame([_flops(result) for result in trained], columns=["system", "corpus", "flops"])
    own = flops.groupby(["system", "corpus"])["flops"].mean()
    systems = list(zip(frame["system"], frame["corpus"], frame["task"], strict=True))
    frame = frame.assign(flops=[np.nan if task else own.get((system, corpus)) for system, corpus, task in systems])
    if len(others):
        frame = pd.concat([frame, others.reindex(columns=COLUMNS)]).sort_values(CELL, ignore_index=True)
    remarks = [notes.get(row.corpus, {}).get(row.system, "") for row in frame.itertuples()]
    joined = ["; ".join(filter(None, pair)) for pair in zip(remarks, frame["note"], strict=True)]
    return frame.assign(note=joined, flops=frame["flops"].astype(float))


def signed(frame: pd.DataFrame, results: Iterable[Result]) -> pd.DataFrame:
    """Add the column `signature`: the exact configuration of the metric, such as sacreBLEU's, or ""."""
    signatures_of: dict[str, set[str]] = {}
    for result in results:
        for metric, signature in result.run.get("signatures", {}).items():
            signatures_of.setdefault(metric, set()).add(signature)
    signatures = {metric: "; ".join(sorted(texts)) for metric, texts in signatures_of.items()}
    return frame.assign(signature=[signatures.get(metric, "") for metric in frame["metric"]])


def _place(row: Any, kind: str) -> tuple[str, ...]:
    """Return the facts that a published row must share with a measured row to be added."""
    if kind == "data_set":
        return row.task.partition("_")[0], row.corpus.partition("_")[0]
    return tuple(getattr(row, name) for name in {"corpus": ["task", "corpus"], "task": ["task"], "run": CELL}[kind])


def _flops(result: Result) -> tuple[str, str, float]:
    return result.run["system"], result.run["corpus"], result.metrics.get("flops", np.nan)
