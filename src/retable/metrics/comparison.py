"""Is one system better than another, over seeds and over test units together?

Both systems are measured on the same units, each by the runs of its seeds. The difference of their means has two
sources of error, which are independent of each other and so add up:

- other units: the jackknife's variance of the difference, over blocks of units (Efron and Stein 1981). For a mean over
  units it is that of the paired t-test.
- other seeds: s²/n of each system, as in Welch's t-test (1947).

The interval is Student's, with the degrees of freedom of such a sum (Satterthwaite 1946). What a seed makes of single
units is in both parts, so the interval is a little too wide rather than too narrow.
"""

from collections.abc import Sequence
from math import isnan, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from retable.metrics.units import Best, Sums

FEWEST = 5  # blocks of units that an interval needs: two documents have three resamples
ALPHA = 0.05
POWER = 0.8  # with which `seeds_needed` seeds would decide
MOST_SEEDS = 1000


class Comparison(NamedTuple):
    """The first system less the second."""

    difference: float  # of the means over seeds, on the scale of the test: nats where the metric is a perplexity
    low: float  # of the 95 % interval; NaN without units and without two seeds a side
    high: float
    p: float  # two-sided
    best: Best
    seeds: tuple[int, int]
    n_blocks: int  # of test units, 0 where the interval is over seeds only
    over_seeds: bool  # False where a side has one seed: the interval then is over units only
    better: int  # of the pairs of a run of each system those in which the first is better
    pairs: int
    seeds_needed: int | None  # on each side, to decide; None where no number up to MOST_SEEDS would

    def verdict(self, p: float | None = None) -> str:
        """Say whether the first system is better, worse, or undecided; what would decide; and what it holds for.

        Args:
            p: adjusted for several comparisons; by default the comparison's own.
        """
        p = self.p if p is None else p
        if isnan(p):
            return "undecided: one seed and no units"
        above = self.difference > 0
        decided = ("better" if above == (self.best != "lowest") else "worse") if p < ALPHA else ""
        if not self.over_seeds:
            return f"{decided or 'undecided'} on these test texts, one seed"
        if decided:
            return decided
        if self.seeds_needed is not None:
            return f"undecided; about {self.seeds_needed} seeds would decide"
        return f"undecided; {'only more test units' if self.n_blocks else f'more than {MOST_SEEDS} seeds'} would decide"


def compare(
    values: ArrayLike, others: ArrayLike, best: Best, sums: Sequence[Sums] = (), other_sums: Sequence[Sums] = ()
) -> Comparison:
    """Compare the runs of two systems.

    Args:
        values: (n,), of the first system's runs, on the scale of the test.
        others: (m,), of the second's.
        best: which values are better; None counts as `highest`.
        sums: of the first system's runs over the units; empty where there are no units.
        other_sums: of the second's, over the same units in the same order.
    """
    own, its = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    n, m = len(own), len(its)
    difference = float(own.mean() - its.mean())
    errors: list[tuple[float, int]] = []  # variances with their degrees of freedom
    blocks = len(sums[0].of_blocks) if sums and other_sums else 0
    if blocks >= FEWEST:
        left_out = jackknife(sums) - jackknife(other_sums)
        errors.append((float(left_out.var()) * (blocks - 1), blocks - 1))
    else:
        blocks = 0
    over_seeds = min(n, m) > 1
    spreads = (float(own.var(ddof=1)), float(its.var(ddof=1))) if over_seeds else (0.0, 0.0)
    if over_seeds:
        errors += [(spreads[0] / n, n - 1), (spreads[1] / m, m - 1)]
    low, high, p = interval(difference, errors)
    gaps = own[:, None] - its[None]
    better = int((gaps < 0).sum() if best == "lowest" else (gaps > 0).sum())
    of_units = errors[0] if blocks else (0.0, 1)
    needed = _seeds_needed(abs(difference), *of_units, sum(spreads), min(n, m) + 1) if over_seeds else None
    return Comparison(difference, low, high, p, best, (n, m), blocks, over_seeds, better, n * m, needed)


def jackknife(runs: Sequence[Sums]) -> NDArray[np.float64]:
    """The mean over runs of a metric without each block of its units, (n_blocks,), on the scale of the test."""
    found = []
    for run in runs:
        added, scale = run.of_blocks, run.compared
        values = run.statistic(added.sum(axis=0) - added)
        found.append(values if scale is None else scale(values))
    return np.mean(found, axis=0)


def interval(difference: float, errors: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """The 95 % interval of a difference and its p-value, from variances and their degrees of freedom."""
    if not errors:
        return nan, nan, nan
    variance = sum(each for each, _ in errors)
    if variance == 0:
        return difference, difference, float(difference == 0)  # all runs and units agree
    freedom = variance**2 / sum(each**2 / degrees for each, degrees in errors)
    error = sqrt(variance)
    margin = float(stdtrit(freedom, 1 - ALPHA / 2)) * error
    return difference - margin, difference + margin, float(2 * stdtr(freedom, -abs(difference) / error))


def _seeds_needed(size: float, of_units: float, freedom_of_units: int, spread: float, fewest: int) -> int | None:
    """The fewest seeds a side, from `fewest`, for which a difference of that size would be found with POWER."""
    n = np.arange(fewest, MOST_SEEDS + 1)
    of_seeds = spread / n
    variance, squares = of_units + of_seeds, of_units**2 / freedom_of_units + of_seeds**2 / (2 * (n - 1))
    freedom = variance**2 / np.maximum(squares, np.finfo(float).tiny)  # whatever it is where there is no spread at all
    enough = size > (stdtrit(freedom, 1 - ALPHA / 2) + stdtrit(freedom, POWER)) * np.sqrt(variance)
    return int(n[enough][0]) if enough.any() else None


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values for their number by Holm's step-down rule (1979); NaN stays and does not count."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]
    adjusted = np.full(p.shape, nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted
