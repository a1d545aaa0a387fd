"""Comparison of two systems that accounts for the choice of seeds and of test units.

Both systems are measured on the same units. Each system has one run per seed. The difference of their means has two
independent sources of error, whose variances add up:

- choice of units: the jackknife variance of the difference, over blocks of units (Efron and Stein 1981). For a metric
  that is a mean over units, this variance equals that of the paired t-test.
- choice of seeds: the variance s²/n of each system's mean over n seeds, as in Welch's t-test (1947).

The confidence interval uses Student's t distribution, with the degrees of freedom of a sum of variances (Satterthwaite
1946). The interaction of seeds and units is included in both variances, so the interval is slightly too wide.
"""

from collections.abc import Sequence
from math import isnan, nan, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from retable.metrics.units import Best, Sums

FEWEST = 5  # Minimum number of blocks for an interval; two blocks have only three different resamples.
ALPHA = 0.05  # Significance level.
POWER = 0.8  # Probability that `seeds_needed` seeds give a significant difference.
MOST_SEEDS = 1000  # Largest number of seeds that `seeds_needed` tries.


class Comparison(NamedTuple):
    """The difference between two systems (the first minus the second), with its uncertainty."""

    difference: float  # Difference of the means over seeds; for perplexities, difference of their logarithms, in nats.
    low: float  # Lower end of the 95 % interval; NaN if there are no units and a system has one seed.
    high: float
    p: float  # Two-sided p-value.
    best: Best
    seeds: tuple[int, int]
    n_blocks: int  # Number of blocks of test units; 0 if the interval is over seeds only.
    over_seeds: bool  # False if a system has one seed, so that the interval covers the choice of units only.
    better: int  # Number of pairs of runs, one per system, in which the first system is better.
    pairs: int  # Number of all pairs of runs, one per system.
    # Seeds per system needed for a significant difference; None if unknown or above MOST_SEEDS.
    seeds_needed: int | None

    def verdict(self, p: float | None = None) -> str:
        """Return whether the first system is better, worse or undecided, as a phrase for tables.

        An undecided verdict also contains the number of seeds that would decide, or "only more test units". A verdict
        that is based on one seed contains the words "one seed".

        Args:
            p: p-value adjusted for several comparisons; by default the unadjusted p-value.
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
        values: results of the first system's runs, (n,); for perplexities, their logarithms.
        others: results of the second system's runs, (m,), on the same scale.
        best: whether the `highest` or the `lowest` values are better; None counts as `highest`.
        sums: for each run of the first system, its `Sums` over test units; empty if there are no units.
        other_sums: the same for the second system, over the same units in the same order.
    """
    first, second = np.asarray(values, dtype=np.float64), np.asarray(others, dtype=np.float64)
    n, m = len(first), len(second)
    difference = float(first.mean() - second.mean())
    errors: list[tuple[float, int]] = []  # pairs of a variance and its degrees of freedom
    blocks = len(sums[0].of_blocks) if sums and other_sums else 0
    if blocks >= FEWEST:
        left_out = jackknife(sums) - jackknife(other_sums)
        errors.append((float(left_out.var()) * (blocks - 1), blocks - 1))
    else:
        blocks = 0
    over_seeds = min(n, m) > 1
    spreads = (float(first.var(ddof=1)), float(second.var(ddof=1))) if over_seeds else (0.0, 0.0)
    if over_seeds:
        errors += [(spreads[0] / n, n - 1), (spreads[1] / m, m - 1)]
    low, high, p = interval(difference, errors)
    gaps = first[:, None] - second[None]
    better = int((gaps < 0).sum() if best == "lowest" else (gaps > 0).sum())
    of_units = errors[0] if blocks else (0.0, 1)
    needed = _seeds_needed(abs(difference), *of_units, sum(spreads), min(n, m) + 1) if over_seeds else None
    return Comparison(difference, low, high, p, best, (n, m), blocks, over_seeds, better, n * m, needed)


def jackknife(runs: Sequence[Sums]) -> NDArray[np.float64]:
    """Compute a metric, averaged over runs, with each block of units left out, (n_blocks,).

    The metric is transformed by `Sums.compared`, such as log for perplexities.
    """
    results = []
    for run in runs:
        added, scale = run.of_blocks, run.compared
        values = run.statistic(added.sum(axis=0) - added)
        results.append(values if scale is None else scale(values))
    return np.mean(results, axis=0)


def interval(difference: float, errors: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """Compute the 95 % interval and p-value of a difference, from variances and their degrees of freedom.

    Args:
        errors: (variance, degrees of freedom) of each part of the error; Satterthwaite's formula combines them.

    Returns: both ends of the interval and the two-sided p-value; all are NaN if `errors` is empty.
    """
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
    """Return how many seeds per system detect a difference with probability POWER.

    The absolute difference is `size`. The search begins at `fewest` seeds. The result is None if MOST_SEEDS seeds do
    not suffice.
    """
    n = np.arange(fewest, MOST_SEEDS + 1)
    of_seeds = spread / n
    variance, squares = of_units + of_seeds, of_units**2 / freedom_of_units + of_seeds**2 / (2 * (n - 1))
    freedom = variance**2 / np.maximum(squares, np.finfo(float).tiny)  # `tiny` avoids 0 / 0 if all variances are 0
    enough = size > (stdtrit(freedom, 1 - ALPHA / 2) + stdtrit(freedom, POWER)) * np.sqrt(variance)
    return int(n[enough][0]) if enough.any() else None


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjust p-values for multiple comparisons by Holm's step-down rule (1979); NaNs stay NaN and do not count."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]
    adjusted = np.full(p.shape, nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return adjusted
