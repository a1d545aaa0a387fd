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

from pipelines.entry import CONF
from retable.artifacts import require
from retable.errors import UsageError, reading
from retable.plan.conf import Conf
from retable.plan.study import read_study

KEY = ["system", "task", "split", "metric"]


def bands(study: str) -> bool:
    """Print what is found of each band; whether all hold."""
    recorded = read_study(Conf(CONF), study).reported.get("bands")
    if not recorded:
        raise UsageError(f"study {study} has no recorded bands; give conf/study/{study}.yaml a list `bands`")
    drifted = False
    for table, rows in recorded.items():
        path = require(Path("results", study, f"{table}.csv"))
        with reading(path, ValueError):
            measured = pd.read_csv(path, keep_default_na=False)
        asked = sorted({"mean" if len(row) == len(KEY) + 2 else "verdict" for row in rows})
        if missing := [name for name in [*KEY, *asked] if name not in measured]:
            raise UsageError(f"{path} has no {', '.join(missing)}, which its bands are of; name another table")
        for holds, found in judged(measured, rows):
            drifted |= not holds
            print(f"{'ok   ' if holds else 'DRIFT'} {table}: {found}")
    return not drifted


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
