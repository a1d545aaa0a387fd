"""What each unit of a split (document, sentence, question) adds to a metric: of it come values, intervals and tests."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.intervals import Statistic

Best = Literal["highest", "lowest"] | None  # of a metric's values; None where it tells no merit


class Sums(NamedTuple):
    """A metric of one run: `statistic` of `sums`, added up over units."""

    sums: NDArray[np.float64]  # (n_units, K)
    statistic: Statistic  # (..., K) to (...)
    text: tuple  # what the units are, whoever is measured on them: their counts, or their labels
    best: Best = "highest"
    compared: Statistic | None = None  # of values, before one is tested against another: a logarithm for perplexities
    whole: bool = True  # whether the measured system read all of each unit
    blocks: NDArray[np.int64] | None = None  # (n_units,), 0 to G − 1, of `Measured.blocks`; None: each unit alone

    def value(self) -> float:
        return float(self.statistic(self.sums.sum(axis=0)))

    @property
    def of_blocks(self) -> NDArray[np.float64]:
        """The sums of each block of units, (G, K): what intervals and tests draw or leave out."""
        if self.blocks is None:
            return self.sums
        added = np.zeros((self.blocks.max() + 1, self.sums.shape[1]))
        np.add.at(added, self.blocks, self.sums)
        return added


class Measured(Protocol):
    """What leaves `units.csv`, a row a unit with its number as `unit`, and how its units add up to metrics.

    A metric that is called like a column is its mean over units; a class says what else it has. It is the class that
    says it, for the report has no instance: it asks the one that a cell's `_target_` names.
    """

    statistics: ClassVar[Mapping[str, tuple[Sequence[str], Statistic]]] = {}  # by metric, of the sums of these columns
    best: ClassVar[Mapping[str, Best]] = {}  # by metric; of others the highest
    in_order: ClassVar[bool] = False  # units next to each other may be alike: the lines of a text, say

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """Number the blocks of units that may be alike, (n_units,); None if all units are independent.

        Units `in_order` form ⌈√n⌉ blocks of neighbours, nearly equal in size: blocks grow with the text, so what
        neighbours share stays inside, and so does their number (the rule of batch means, Flegal and Jones 2010).

        Args:
            units: rows of one split.
            unit: what the corpus calls a unit of its text, `line` or `document`.
        """
        return neighbours(len(units)) if cls.in_order else None

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """The units of metrics `<task>/<split>/<name>`; the task of `<split>/<name>` is empty."""
        return units[units["split"] == split]

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        """What the units are, whoever is measured on them: their numbers, and labels where there are any."""
        return tuple(zip(*(units[name] for name in ("unit", "label") if name in units), strict=True))

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        """How the units add up to a metric, None for one that they don't tell."""
        best, (names, statistic) = cls.best.get(metric, "highest"), cls.statistics.get(metric, ([metric], share))
        if not {*names} <= {*units}:
            return None
        if metric not in cls.statistics:
            return mean(units[metric], cls.text(units), best)
        return Sums(columns(units, names), statistic, cls.text(units), best)

    @classmethod
    def values(cls, units: pd.DataFrame, metrics: Iterable[str]) -> dict[str, float]:
        """Those of the metrics that the units tell."""
        found = ((name, cls.sums(units, name)) for name in metrics)
        return {name: sums.value() for name, sums in found if sums is not None}


def neighbours(n: int) -> NDArray[np.int64]:
    """Number ⌈√n⌉ blocks of consecutive units, (n,)."""
    return np.arange(n) * math.ceil(math.sqrt(n)) // n


def mean(values: ArrayLike, text: tuple, best: Best = "highest") -> Sums:
    """The mean of one number (n_units,) a unit."""
    numbers = np.asarray(values, dtype=np.float64)
    return Sums(np.stack([numbers, np.ones_like(numbers)], axis=-1), share, text, best)


def share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first of two numbers by the second, 0 where that is 0; (..., 2) to (...)."""
    return sums[..., 0] / np.where(sums[..., 1], sums[..., 1], 1)


def columns(units: pd.DataFrame, names: Iterable[str]) -> NDArray[np.float64]:
    """Those of the units, (n_units, K), row by row in memory: in which order they are added up is then known."""
    return np.ascontiguousarray(units[[*names]], dtype=np.float64)
