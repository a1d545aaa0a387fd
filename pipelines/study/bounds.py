"""Check a study's tables against its recorded bands: `retable bands smoke`.

A band belongs to a row of a table's CSV, and contains the range of its mean or its verdict:

    bands:
      perplexity:
        - [lstm, "", test, perplexity_word, 108, 132]      # system, task, split, metric, lowest, highest
      lineage:
        - [lstm, "", test, perplexity_word, better]        # or a verdict instead of the range
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pipelines.config.project import STUDY, enter_project, files_of_study
from pipelines.study.compose import study_here
from retable.core.artifacts import require
from retable.core.errors import UsageError, reading

KEY = ["system", "task", "split", "metric"]


def bands(study: str | None) -> bool:
    """Print the value of each band of a study, and return whether all are within their bands."""
    enter_project(study)
    held = True
    for holds, line in check():
        held &= holds
        print(f"{'ok   ' if holds else 'DRIFT'} {line}")
    return held


def summary(study: str | None) -> str:
    """Return a summary of a study's bands in Markdown: the values outside, that all hold, or why none was checked."""
    enter_project(study)
    try:
        checked = list(check())
    except UsageError as error:
        return f"### Bands\n\nNo bands were checked: {error}"
    drifts = [f"- {line}" for holds, line in checked if not holds]
    return "\n".join(["### Bands\n", *(drifts or [f"All {len(checked)} bands hold."])])


def check() -> Iterator[tuple[bool, str]]:
    """Yield, for each band of the working folder's study, whether it holds, and a line with the measured value."""
    study = study_here()
    recorded = study.reported.get("bands")
    if not recorded:
        raise UsageError(f"study {study.name} has no recorded bands; write a key `bands` in its {STUDY}")
    for table, rows in recorded.items():
        path = require(Path(f"{files_of_study()}results", f"{table}.csv"))
        with reading(path, ValueError):
            measured = pd.read_csv(path, keep_default_na=False)
        columns = sorted({"mean" if len(row) == len(KEY) + 2 else "verdict" for row in rows})
        if missing := [name for name in [*KEY, *columns] if name not in measured]:
            raise UsageError(f"{path} has no column {', '.join(missing)}, which its bands need; write another table")
        yield from ((holds, f"{table}: {line}") for holds, line in judged(measured, rows))


def judged(measured: pd.DataFrame, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[bool, str]]:
    """Yield, for each band, whether it holds, and a line with the measured value."""
    cells = measured.set_index(KEY)
    for row in rows:
        key, expected = tuple(map(str, row[:4])), row[4:]
        if key in cells.index and isinstance(cells.loc[key], pd.DataFrame):
            raise UsageError(f"several rows match {' '.join(key)}, but a band needs one; leave the band out")
        cell = cells.loc[key] if key in cells.index else {"mean": "nan", "verdict": "missing"}
        if len(expected) == 1:
            holds, result = cell["verdict"] == expected[0], f"{cell['verdict']}, expected {expected[0]}"
        else:
            value, (low, high) = float(pd.to_numeric(cell["mean"], errors="coerce")), expected
            holds, result = low <= value <= high, f"{value:.4g}, band {low} to {high}"
        yield holds, f"{' '.join(filter(None, key))} = {result}"
