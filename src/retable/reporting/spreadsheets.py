"""Write CSV files of tables that are safe to open in spreadsheets.

CSV files of tables are for people, so formulas are escaped. CSV files in cells are for programs, and are not escaped.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from retable.core.escaping import spreadsheet


def write_csv(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    """Write a frame without its index, with formulas escaped; `options` are passed to pandas' `to_csv`."""
    texts = {
        name: pd.Series([*map(spreadsheet, column)], column.index, column.dtype)
        for name, column in frame.select_dtypes(exclude="number").items()
    }
    frame.assign(**texts).to_csv(path, index=False, lineterminator="\n", **options)
