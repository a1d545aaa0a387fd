"""A study's tables against its recorded bands: `retable bands smoke`.

A band is of a row of a table's CSV, and says what is expected of its mean, or of its verdict:

    bands:
      perplexity:
        - [lstm, "", test, perplexity_word, 108, 132]      # system, task, split, metric, lowest, highest
      lineage:
        - [lstm, "", test, perplexity_word, better]        # or in their place the verdict
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
    """Print the value of each band; whether all hold."""
    enter_project(study)
    held = True
    for holds, found in check():
        held &= holds
        print(f"{'ok   ' if holds else 'DRIFT'} {found}")
    return held


def summary(study: str | None) -> str:
    """Summarise the bands of a study in Markdown: those that do not hold, that all hold, or that it has no tables."""
    enter_project(study)
    try:
        found = list(check())
    except UsageError as error:
        return f"### Bands\n\nNo bands were checked: {error}"
    drifts = [f"- {line}" for holds, line in found if not holds]
    return "\n".join(["### Bands\n", *(drifts or [f"All {len(found)} bands hold."])])


def check() -> Iterator[tuple[bool, str]]:
    """Of each band of the study that the working folder is of: whether it holds, and a line with what was found."""
    study = study_here()
    recorded = study.reported.get("bands")
    if not recorded:
        raise UsageError(f"study {study.name} has no recorded bands; give its {STUDY} a list `bands`")
    for table, rows in recorded.items():
        path = require(Path(f"{files_of_study()}results", f"{table}.csv"))
        with reading(path, ValueError):
            measured = pd.read_csv(path, keep_default_na=False)
        asked = sorted({"mean" if len(row) == len(KEY) + 2 else "verdict" for row in rows})
        if missing := [name for name in [*KEY, *asked] if name not in measured]:
            raise UsageError(f"{path} has no {', '.join(missing)}, which its bands are of; name another table")
        yield from ((holds, f"{table}: {found}") for holds, found in judged(measured, rows))


def judged(measured: pd.DataFrame, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[bool, str]]:
    """Of each band whether it holds, and what was found."""
    cells = measured.set_index(KEY)
    for row in rows:
        key, expected = tuple(map(str, row[:4])), row[4:]
        if key in cells.index and isinstance(cells.loc[key], pd.DataFrame):
            raise UsageError(f"several rows are of {' '.join(key)}, and a band is of one; leave it out")
        cell = cells.loc[key] if key in cells.index else {"mean": "nan", "verdict": "missing"}
        if len(expected) == 1:
            holds, found = cell["verdict"] == expected[0], f"{cell['verdict']}, expected {expected[0]}"
        else:
            value, (low, high) = float(pd.to_numeric(cell["mean"], errors="coerce")), expected
            holds, found = low <= value <= high, f"{value:.4g}, band {low} to {high}"
        yield holds, f"{' '.join(filter(None, key))} = {found}"
