"""The tables of `conf/table`, which tests make as the report does."""

from pathlib import Path

import pandas as pd

from retable.plan.conf import Conf
from retable.reporting.markup import Table
from retable.reporting.tables import specified_table

SPECIFICATIONS = Conf(Path(__file__).parents[2] / "conf").tables()


def made(name: str, frame: pd.DataFrame) -> Table:
    """The table of these rows of the aggregates."""
    return specified_table(name, SPECIFICATIONS[name], frame)
