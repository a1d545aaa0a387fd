"""Bootstrap intervals and tests for statistics that are functions of sums over units.

Perplexity, accuracy, Matthews and F1 all are: a unit (a document, an example) adds a row of K numbers, and
`statistic` maps sums (..., K) to values (...). A resample then is one row of multinomial weights, and a
thousand resamples are one matrix product.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

CHUNK = 2**22  # weights held at once: 32 MiB


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """The mean and the sample standard deviation (n − 1) of 1-D values; NaN is that of a single value."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) > 1 and (values == values[0]).all():  # whose mean may be off by a rounding, and a deviation with it
        return float(values[0]), 0.0
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def clustered_mean(sums: ArrayLike, sizes: ArrayLike) -> tuple[float, float]:
    """The mean of values that come in clusters, whose sums and sizes (n,) these are, and its standard error, that of a
    ratio (Cochran 1977, chapter 6): values of one cluster may be alike. NaN is that of a single cluster."""
    sums, sizes = np.asarray(sums, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    mean, n = sums.sum() / sizes.sum(), len(sums)
    spread = np.square(sums - mean * sizes).sum() * n / (n - 1) if n > 1 else np.nan
    return float(mean), float(np.sqrt(spread) / sizes.sum())


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of 1-D values; NaN for a single one, which tells nothing of the spread."""
    mean, std = mean_std(values)
    n = np.size(values)
    return _student(mean, std / math.sqrt(n), n - 1, level)


def difference_interval(values: ArrayLike, others: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Welch's interval of the mean of 1-D `values` less that of `others` (Welch 1947): neither pairs nor equal
    variances are supposed. NaN where either is a single value. Of pairs take `mean_interval` of their differences."""
    (mean, std), (other, other_std) = mean_std(values), mean_std(others)
    n, m = np.size(values), np.size(others)
    own, its = std**2 / n, other_std**2 / m
    squares = own**2 / max(n - 1, 1) + its**2 / max(m - 1, 1)
    freedom = (own + its) ** 2 / squares if squares > 0 else n + m - 2  # no spread at all, so no interval to scale
    return _student(mean - other, math.sqrt(own + its), freedom, level)


def _student(mean: float, error: float, freedom: float, level: float) -> tuple[float, float]:
    margin = float(stdtrit(freedom, (1 + level) / 2)) * error
    return mean - margin, mean + margin


def bootstrap_sums(units: ArrayLike, resamples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Sums over units resampled with replacement; (n_units, K) to (resamples, K).

    The same seed and number of units give the same resamples, whatever the units hold.
    """
    units = np.asarray(units, dtype=np.float64)
    n = len(units)
    generator = np.random.Generator(np.random.Philox(seed))
    sums = np.empty((resamples, units.shape[1]))
    rows = max(1, CHUNK // n)
    for start in range(0, resamples, rows):
        # counting drawn indices is the multinomial distribution, seven times as fast as Generator.multinomial
        weights = np.stack(
            [
                np.bincount(generator.integers(n, size=n, dtype=np.int32), minlength=n)
                for _ in range(min(rows, resamples - start))
            ]
        )
        sums[start : start + rows] = weights.astype(np.float64) @ units
    return sums


def bootstrap(
    systems: Sequence[NDArray[np.float64]] | NDArray[np.float64],
    statistic: Statistic,
    resamples: int = 1000,
    seed: int = 0,
) -> NDArray[np.float64]:
    """The mean of a statistic over systems in each resample of their units, (resamples,).

    systems, (n_units, K) each, mostly the seeds of one, hold the same units in the same order: a resample draws
    one set of units for all of them, and for all calls with the same seed and number of units.
    """
    sums = bootstrap_sums(np.hstack([*systems]), resamples, seed)
    ends = np.cumsum([system.shape[1] for system in systems])
    return np.mean([statistic(each) for each in np.split(sums, ends[:-1], axis=1)], axis=0)


def percentile_interval(replicates: ArrayLike, level: float = 0.95, n: float = math.inf) -> tuple[float, float]:
    """Return the percentile interval of bootstrap replicates (Efron and Tibshirani 1993, chapter 13).

    Where the replicates are of n units (or blocks of them), it is the expanded one (Hesterberg 2015, section 5.2): the
    percentiles lie as far out as Student's t of n − 1 and the spread of a sample instead of a resample want it. Without
    that the interval of twenty units holds the truth less often than it says.
    """
    z = (
        float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(n / (n - 1))
        if n < math.inf
        else float(ndtri((1 + level) / 2))
    )
    low, high = np.quantile(np.asarray(replicates), ndtr([-z, z]))
    return float(low), float(high)


def paired_test(difference: float, replicates: ArrayLike) -> float:
    """Two-sided p-value of a difference on the same units (Berg-Kirkpatrick et al. 2012, figure 1).

    replicates is that difference in each resample: `bootstrap` of one system less that of the other. p is the
    share of resamples in which it strays from the observed difference by at least that difference's size;
    with the observed sample counted, p is at least 1 / (resamples + 1). Resamples in which the statistic is not
    defined, NaN, tell nothing and are left out.
    """
    strays = np.abs(np.asarray(replicates, dtype=np.float64) - difference)
    # of shares many lie at that very distance, but for rounding
    strays = strays[~np.isnan(strays)] >= abs(difference) * (1 - 1e-9)
    return (1 + int(strays.sum())) / (strays.size + 1)
