"""CSV files of tables for people, safe to open in spreadsheets. CSV files of cells are not changed."""

from pathlib import Path
from typing import Any

import pandas as pd

from retable.core.escaping import spreadsheet


def write_csv(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    """Write a frame without its index, with formulas escaped; `options` are those of pandas' `to_csv`."""
    texts = {
        name: pd.Series([*map(spreadsheet, column)], column.index, column.dtype)
        for name, column in frame.select_dtypes(exclude="number").items()
    }
    frame.assign(**texts).to_csv(path, index=False, lineterminator="\n", **options)
