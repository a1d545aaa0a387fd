"""Contributions of single units (documents, sentences, questions) to a metric.

The metric's value, its intervals and its tests are computed from the contributions of units.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.intervals import Statistic

# which values of a metric are better; None if neither high nor low values are
Best = Literal["highest", "lowest"] | None


class Sums(NamedTuple):
    """The contributions of units to a metric of one run; `statistic` maps their sum to the metric."""

    sums: NDArray[np.float64]  # One row per unit, (n_units, K).
    statistic: Statistic  # A function of sums, (..., K) to (...).
    text: tuple  # Identifies the units for paired tests: counts or labels, the same for all systems.
    best: Best = "highest"
    compared: Statistic | None = None  # Transforms values before tests, such as log for perplexities.
    whole: bool = True  # Whether the system read every unit completely.
    blocks: NDArray[np.int64] | None = None  # Block of each unit, 0 to G − 1, (n_units,); None: one block per unit.

    def value(self) -> float:
        return float(self.statistic(self.sums.sum(axis=0)))

    @property
    def of_blocks(self) -> NDArray[np.float64]:
        """Return the sums of each block of units, (G, K); intervals and tests resample blocks."""
        if self.blocks is None:
            return self.sums
        added = np.zeros((self.blocks.max() + 1, self.sums.shape[1]))
        np.add.at(added, self.blocks, self.sums)
        return added


class Measured(Protocol):
    """A task or benchmark that writes `units.csv` and defines how its rows add up to metrics.

    Each row of `units.csv` is one unit.

    A metric with the name of a column is the column's mean over units. Subclasses add other metrics. All methods are
    class methods, because only the class is available when a report is written, from a cell's `_target_`, and no
    instance of it.
    """

    statistics: ClassVar[
        Mapping[str, tuple[Sequence[str], Statistic]]
    ] = {}  # Maps a metric to its columns and a function of their sums.
    best: ClassVar[Mapping[str, Best]] = {}  # Which values of a metric are better; `highest` by default.
    in_order: ClassVar[bool] = False  # Whether adjacent units may be similar, as lines of a text.

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """Return the block number of each unit, (n_units,); None if all units are independent.

        The units of a block may be similar. If `in_order` is true, n units form ⌈√n⌉ blocks of neighbouring units, of
        nearly equal size. Both the size and the number of blocks grow with the text (the rule of batch means, Flegal
        and Jones 2010).

        Args:
            units: the rows of `units.csv` for one split.
            unit: unit of the corpus's text, `line` or `document`.
        """
        return neighbours(len(units)) if cls.in_order else None

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Return the units from which the metrics `<task>/<split>/<name>` are computed.

        For metrics called `<split>/<name>`, `task` is empty.

        Args:
            units: all rows of `units.csv`, with column `split`.
        """
        return units[units["split"] == split]

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        """Return values that identify the units, equal for all systems: their numbers, and labels if available."""
        return tuple(zip(*(units[name] for name in ("unit", "label") if name in units), strict=True))

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        """Return the contributions of the units to a metric, or None if columns are missing.

        Args:
            units: a row per unit of one split.
            metric: name without the split, such as `accuracy`.
        """
        best, (names, statistic) = cls.best.get(metric, "highest"), cls.statistics.get(metric, ([metric], share))
        if not {*names} <= {*units}:
            return None
        if metric not in cls.statistics:
            return mean(units[metric], cls.text(units), best)
        return Sums(columns(units, names), statistic, cls.text(units), best)

    @classmethod
    def values(cls, units: pd.DataFrame, metrics: Iterable[str]) -> dict[str, float]:
        """Compute those of `metrics` whose columns exist in `units`.

        Args:
            units: a row per unit of one split.
        """
        results = ((name, cls.sums(units, name)) for name in metrics)
        return {name: sums.value() for name, sums in results if sums is not None}


def neighbours(n: int) -> NDArray[np.int64]:
    """Return the block number of each of n units, (n,), in ⌈√n⌉ blocks of consecutive units."""
    return np.arange(n) * math.ceil(math.sqrt(n)) // n


def mean(values: ArrayLike, text: tuple, best: Best = "highest") -> Sums:
    """Return the `Sums` of a metric that is the mean of one number per unit, (n_units,).

    Args:
        text: identifies the measured text; systems with equal `text` can be compared unit by unit.
        best: whether a high or a low value is better.
    """
    numbers = np.asarray(values, dtype=np.float64)
    return Sums(np.stack([numbers, np.ones_like(numbers)], axis=-1), share, text, best)


def share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide the first of two numbers by the second; (..., 2) to (...).

    The result is 0 if the second number is 0.
    """
    return sums[..., 0] / np.where(sums[..., 1], sums[..., 1], 1)


def columns(units: pd.DataFrame, names: Iterable[str]) -> NDArray[np.float64]:
    """Return columns of the units, (n_units, K), with contiguous rows, so that the order of addition is fixed.

    Returns: float64.
    """
    return np.ascontiguousarray(units[[*names]], dtype=np.float64)
