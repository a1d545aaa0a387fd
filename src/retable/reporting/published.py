"""What stands in the tables beside the measured: the cost of training, published rows that were not run, notes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from retable.reporting.results import CELL, COLUMNS, ORACLE, Result

NOT_RUN = "not run"  # the verdict of a published row that the study has no run of
ELSEWHERE = "not in this study"  # why not, where another one has it


def complete(
    frame: pd.DataFrame,
    references: pd.DataFrame,
    trained: Iterable[Result],
    notes: Mapping[str, Mapping[str, str]],
) -> pd.DataFrame:
    """The aggregates with the rows that others published and the study didn't run, whose notes say why not.

    Such rows are of what the study measured, as `beside` says in `references.yaml`; they have no mean and no run, and
    as flops what the published training cost. Those of a row that was run are its own, from the metrics of `trained`.
    `notes` are texts by corpus and system, which stand before what a row has to say of itself.
    """
    measured = frame[frame["system"] != ORACLE]
    places = {(kind, _place(row, kind)) for kind in references["beside"].unique() for row in measured.itertuples()}
    shown = [(row.beside, _place(row, row.beside)) in places for row in references.itertuples()]
    others = references[shown]
    others = others.rename(columns={"value": "published"}).assign(verdict=NOT_RUN, n=0, runs="", protocol="")
    partly = set(zip(frame["system"], frame["corpus"], strict=True))  # those that were run, on another split or task
    reasons = ["" if (row.system, row.corpus) in partly else row.not_run or ELSEWHERE for row in others.itertuples()]
    others["note"] = ["; ".join(filter(None, pair)) for pair in zip(reasons, others["note"], strict=True)]
    run = set(frame[CELL].itertuples(index=False, name=None))
    others = others[[cell not in run for cell in others[CELL].itertuples(index=False, name=None)]]
    flops = pd.DataFrame([_flops(result) for result in trained], columns=["system", "corpus", "flops"])
    own = flops.groupby(["system", "corpus"])["flops"].mean()
    systems = list(zip(frame["system"], frame["corpus"], frame["task"], strict=True))
    frame = frame.assign(flops=[np.nan if task else own.get((system, corpus)) for system, corpus, task in systems])
    if len(others):
        frame = pd.concat([frame, others.reindex(columns=COLUMNS)]).sort_values(CELL, ignore_index=True)
    told = [notes.get(row.corpus, {}).get(row.system, "") for row in frame.itertuples()]
    joined = ["; ".join(filter(None, pair)) for pair in zip(told, frame["note"], strict=True)]
    return frame.assign(note=joined, flops=frame["flops"].astype(float))


def signed(frame: pd.DataFrame, results: Iterable[Result]) -> pd.DataFrame:
    """The aggregates with `signature`, by which others compute the same metric; "" where runs leave none."""
    found: dict[str, set[str]] = {}
    for result in results:
        for metric, signature in result.run.get("signatures", {}).items():
            found.setdefault(metric, set()).add(signature)
    signatures = {metric: "; ".join(sorted(told)) for metric, told in found.items()}
    return frame.assign(signature=[signatures.get(metric, "") for metric in frame["metric"]])


def _place(row: Any, beside: str) -> tuple[str, ...]:
    """What of a row has to be the same for a published one to stand beside it."""
    if beside == "data_set":
        return row.task.partition("_")[0], row.corpus.partition("_")[0]
    return tuple(getattr(row, name) for name in {"corpus": ["task", "corpus"], "task": ["task"], "run": CELL}[beside])


def _flops(result: Result) -> tuple[str, str, float]:
    return result.run["system"], result.run["corpus"], result.metrics.get("flops", np.nan)
