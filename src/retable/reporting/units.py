"""The mean of a metric over several runs on the same test units, with its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retable.metrics.comparison import FEWEST
from retable.metrics.intervals import bootstrap, percentile_interval
from retable.metrics.units import Sums


@dataclass(frozen=True)
class UnitSums:
    """Scores per test unit of several runs, usually the seeds of one system.

    All runs must be measured on the same units; otherwise ValueError is raised.
    """

    runs: Sequence[Sums]

    def __post_init__(self) -> None:
        if any(run.text != self.text for run in self.runs):
            raise ValueError("the runs were measured on different units")

    @property
    def text(self) -> tuple:
        return self.runs[0].text

    @property
    def whole(self) -> bool:
        """Whether the system read the whole text of each unit."""
        return self.runs[0].whole

    @property
    def best(self) -> str | None:
        return self.runs[0].best

    def compared(self, values: ArrayLike) -> NDArray[np.float64]:
        """Transform values of the metric to the scale on which two systems are compared."""
        scale = self.runs[0].compared
        return np.asarray(values) if scale is None else scale(np.asarray(values))

    @cached_property
    def replicates(self) -> NDArray[np.float64]:
        """The mean over runs in each bootstrap resample of blocks of units, (resamples,)."""
        return bootstrap([run.of_blocks for run in self.runs], self.runs[0].statistic)

    @property
    def n_blocks(self) -> int:
        return len(self.runs[0].of_blocks)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean over the choice of test units; NaN for fewer than FEWEST blocks."""
        if self.n_blocks < FEWEST:
            return math.nan, math.nan
        return percentile_interval(self.replicates, n=self.n_blocks)
