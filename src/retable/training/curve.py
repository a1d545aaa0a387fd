"""The learning curve: values of metrics by step."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Point(NamedTuple):
    step: int
    metric: str
    value: float


def write_curve(points: Iterable[Point], path: Path) -> None:
    """Write `curve.csv` with the columns step, metric, value."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        writer.writerows((step, metric, f"{value:.6g}") for step, metric, value in points)
