"""Convert averaged results (`results.aggregate`) to fields of tables."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.names import display_name

Cell: TypeAlias = Mapping[str, Any] | pd.Series  # a row of `results.aggregate`
SIGNIFICANT = 0.05
LARGE = 1e6
SPREAD = "The ± of a measured number is the sample standard deviation over seeds; a single run has no ±."
BOLD = (
    "Bold: the best system, and each system that does not differ significantly from it in a paired bootstrap over the "
    f"units of the split (p ≥ {SIGNIFICANT}, not corrected for the number of comparisons)."
)


def filled_table(
    name: str,
    title: str,
    columns: list[Column],
    panels: dict[str, list[Row]],
    notes: list[str],
    lead: tuple[str, ...] = (),
) -> Table:
    """Build a table, leaving out columns that are empty in all rows."""
    rows = [row for panel in panels.values() for row in panel]
    kept = [i for i in range(len(columns)) if any(row.values[i].text not in ("", "n/a") for row in rows)]
    return Table(
        name,
        title,
        [columns[i] for i in kept],
        {corpus: [Row([row.values[i] for i in kept], row.apart) for row in panel] for corpus, panel in panels.items()},
        notes,
        lead=lead,
    )


def system_value(key: str) -> Value:
    """Return a field with a system's display name, and its key if the two differ."""
    name = display_name(key)
    return Value(name, key=key if name != key else "")


def runs_value(counts: Iterable[float]) -> Value:
    numbers = [*counts]
    return Value(span(numbers) if any(numbers) else "")


def span(counts: Iterable[float]) -> str:
    """Format counts as one number if all are equal, otherwise as the lowest and the highest."""
    ordered = sorted(counts)
    return "–".join(f"{count:.0f}" for count in dict.fromkeys([*ordered[:1], *ordered[-1:]]))


def number(value: float, digits: int) -> str:
    """Format a number with `digits` digits after the decimal point; from 1e6 in scientific notation."""
    return f"{value:.{digits}f}" if abs(value) < LARGE else f"{value:.1e}"


def mean_value(cell: Cell | None, digits: int, scale: float = 1, bold: bool = True) -> Value:
    if cell is None or np.isnan(cell["mean"]):
        return Value("")
    runs = tuple(cell["runs"].split(" "))
    return Value(
        number(cell["mean"] * scale, digits),
        spread="" if np.isnan(cell["std"]) else number(cell["std"] * scale, digits),
        bold=bold and cell["p_best"] >= SIGNIFICANT,
        runs=runs,
        hint=f"{len(runs)} run{'s' * (len(runs) > 1)}: {', '.join(runs)}",
    )


def number_value(cell: Cell | None, digits: int, scale: float = 1) -> Value:
    """Return a field with the mean, or with the published number if the system was not run."""
    if cell is None or not np.isnan(cell["mean"]):
        return mean_value(cell, digits, scale)
    return Value(number(cell["published"] * scale, digits), hint=cell["source"])


def interval_value(cell: Cell | None, digits: int, scale: float = 1) -> Value:
    if cell is None or np.isnan(cell["ci_low"]):
        return Value("")
    return Value("–".join(number(cell[end] * scale, digits) for end in ("ci_low", "ci_high")))


def published_values(cell: Cell | None, digits: int, scale: float = 1) -> tuple[Value, Value]:
    """Return two fields: the published number and the verdict."""
    if cell is None or np.isnan(cell["published"]):
        return Value(""), Value("" if cell is None else cell["verdict"])
    published, tolerance = (number(cell[name] * scale, digits) for name in ("published", "tolerance"))
    spread = "" if np.isnan(cell["tolerance"]) else tolerance
    return Value(published, spread, hint=cell["source"]), Value(cell["verdict"])
