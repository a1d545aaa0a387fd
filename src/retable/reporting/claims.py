"""Check the tables of a study against the results that its `study.yaml` expects.

`bands` lists expected rows for each table. `figure` lists the claim of each figure, with rows that must support it:

    bands:
      perplexity:
      - [lstm, "", test, perplexity_word, 108, 132]       # system, task, split, metric; lowest and highest mean
      lineage:
      - [lstm, "", test, perplexity_word, better]         # or the expected verdict
    figure:
      phenomena-grammar:
        claim: LSTMs learn nesting; n-grams do not
        holds:
          phenomena-grammar:
          - [lstm, nesting, below, kn5]                   # the whole interval is below (or above) that of kn5
          - [lstm, nesting, 0, 0.2]                       # rows of this table are named by system and phenomenon

A claim becomes the title of its figure if the tables agree with all rows under `holds`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from retable.core.artifacts import require
from retable.core.errors import UsageError, reading

KEYS = (["system", "task", "split", "metric"], ["system", "phenomenon"])  # columns that identify a row
SIDES = ("below", "above")


def check_tables(folder: Path, tables: Mapping[str, Iterable[Sequence[Any]]]) -> Iterator[tuple[bool, str]]:
    """Yield, for each expected row of the tables in a folder, whether it holds, and a line with the measured value.

    Raises: UsageError: a table is missing, or lacks a column.
    """
    for table, rows in tables.items():
        path = require(folder / f"{table}.csv")
        with reading(path, ValueError):
            measured = pd.read_csv(path, keep_default_na=False)
        own = [*rows]
        key = next((key for key in KEYS if {*key} <= {*measured}), KEYS[0])
        columns = {column for row in own for column in _columns(row[len(key) :])}
        if missing := [name for name in [*key, *sorted(columns)] if name not in measured]:
            raise UsageError(
                f"{path} has no column {', '.join(missing)}, which the bands of this table need; "
                "name a table with this column"
            )
        yield from ((holds, f"{table}: {line}") for holds, line in check_rows(measured, own))


def check_rows(measured: pd.DataFrame, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[bool, str]]:
    """Yield, for each expected row of one table, whether it holds, and a line with the measured value."""
    columns = next((key for key in KEYS if {*key} <= {*measured}), KEYS[0])
    cells = measured.set_index(columns)

    def cell(key: tuple[str, ...]) -> Any:
        if key in cells.index and isinstance(cells.loc[key], pd.DataFrame):
            raise UsageError(f"several rows match {' '.join(key)}, but a band must match one row; remove the band")
        return cells.loc[key] if key in cells.index else {"verdict": "missing"}

    for row in rows:
        key, expected = tuple(map(str, row[: len(columns)])), row[len(columns) :]
        own = cell(key)
        match expected:
            case [verdict]:
                holds, result = own["verdict"] == verdict, f"{own['verdict']}, expected {verdict}"
            case [str(side), other]:
                (low, high), (low_2, high_2) = _interval(own), _interval(cell((str(other), *key[1:])))
                holds = high < low_2 if side == SIDES[0] else low > high_2
                result = f"{low:.4g} to {high:.4g}, expected {side} {other}, {low_2:.4g} to {high_2:.4g}"
            case [low, high]:
                value = _number(own, "mean")
                holds, result = low <= value <= high, f"{value:.4g}, band {low} to {high}"
        yield bool(holds), f"{' '.join(filter(None, key))} = {result}"


def _columns(expected: Sequence[Any]) -> Sequence[str]:
    if len(expected) == 1:
        return ["verdict"]
    return ["ci_low", "ci_high"] if isinstance(expected[0], str) else ["mean"]


def _interval(cell: Any) -> tuple[float, float]:
    return _number(cell, "ci_low"), _number(cell, "ci_high")


def _number(cell: Any, column: str) -> float:
    return float(pd.to_numeric(cell.get(column, ""), errors="coerce"))
