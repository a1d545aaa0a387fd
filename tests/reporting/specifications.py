"""Make the tables of `conf/table/` as the report does, and read their fields."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from retable.planning.conf import Conf
from retable.reporting.markup import Table, Value
from retable.reporting.published import complete
from retable.reporting.results import aggregate, read_references, read_result
from retable.reporting.tables import rows_tables, specified_table

SPECIFICATIONS = Conf(Path(__file__).parents[2] / "conf").tables()
REFERENCES = read_references()


def framed(
    *folders: Path, references: pd.DataFrame = REFERENCES, notes: Mapping[str, Mapping[str, str]] | None = None
) -> pd.DataFrame:
    """Return the aggregates of folders, with published rows."""
    return complete(aggregate(map(read_result, folders), references), references, [], notes or {})


def made(name: str, frame: pd.DataFrame) -> Table:
    """Return the table of these rows of the aggregates."""
    return specified_table(name, SPECIFICATIONS[name], frame)


def of_rows(name: str, frame: pd.DataFrame) -> list[tuple[Table, pd.DataFrame]]:
    """Return a table for each of these rows."""
    return [*rows_tables(name, SPECIFICATIONS[name], frame)]


def heads(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def lines(table: Table, panel: str) -> list[dict[str, Value]]:
    """Return the fields of each row, by the names of the columns."""
    return [dict(zip(heads(table), row.values, strict=True)) for row in table.panels[panel]]


def fields(table: Table, panel: str) -> dict[str, dict[str, Value]]:
    """Return the fields of each row by the names of the columns; rows are named by their system's key or label."""
    return {of(row[heads(table)[0]]): row for row in lines(table, panel)}


def shown(table: Table, panel: str) -> dict[str, dict[str, str]]:
    """Return the texts of `fields`."""
    return {label: {name: of(value) for name, value in row.items()} for label, row in fields(table, panel).items()}


def texts(table: Table, panel: str) -> list[list[str]]:
    """Return the texts of each row."""
    return [[of(value) for value in row.values] for row in table.panels[panel]]


def of(value: Value) -> str:
    """Return the key of a value with a display name, otherwise its text."""
    return value.key or value.text
