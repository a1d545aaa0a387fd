"""Tables for people as CSV, which spreadsheets open. The CSV files of cells are data that stages read, as they are."""

from pathlib import Path
from typing import Any

import pandas as pd

from retable.core.escaping import spreadsheet


def write_csv(frame: pd.DataFrame, path: Path, **options: Any) -> None:
    """Write a frame without its index; `options` are pandas'. No text in it is a formula."""
    texts = {
        name: pd.Series([*map(spreadsheet, column)], column.index, column.dtype)
        for name, column in frame.select_dtypes(exclude="number").items()
    }
    frame.assign(**texts).to_csv(path, index=False, lineterminator="\n", **options)
