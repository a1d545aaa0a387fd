"""The tables of `conf/table`, which tests make as the report does."""

from pathlib import Path

import pandas as pd

from retable.planning.conf import Conf
from retable.reporting.markup import Table
from retable.reporting.tables import rows_tables, specified_table

SPECIFICATIONS = Conf(Path(__file__).parents[2] / "conf").tables()


def made(name: str, frame: pd.DataFrame) -> Table:
    """The table of these rows of the aggregates."""
    return specified_table(name, SPECIFICATIONS[name], frame)


def of_rows(name: str, frame: pd.DataFrame) -> list[tuple[Table, pd.DataFrame]]:
    """The tables of these rows, each with its own."""
    return [*rows_tables(name, SPECIFICATIONS[name], frame)]
