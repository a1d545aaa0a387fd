"""Bootstrap intervals and tests for statistics that are functions of sums over units.

Perplexity, accuracy, Matthews and F1 are functions of sums over units: each unit (a document, an example) contributes K
numbers, and `statistic` maps sums, (..., K), to values, (...). A resample is one row of multinomial weights, so one
matrix product computes the sums of a thousand resamples.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

CHUNK = 2**22  # number of resampling weights in memory at a time, 32 MiB


def mean_std(values: ArrayLike) -> tuple[float, float]:
    """Compute the mean and the sample standard deviation (n − 1) of 1-D values.

    The standard deviation of a single value is NaN.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) > 1 and (values == values[0]).all():  # avoids rounding errors
        return float(values[0]), 0.0
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def clustered_mean(sums: ArrayLike, sizes: ArrayLike) -> tuple[float, float]:
    """Compute the mean of values that come in clusters, and the mean's standard error.

    Values in one cluster may be similar, so the standard error is that of a ratio estimate (Cochran 1977, chapter 6).
    The standard error is NaN if there is only one cluster.

    Args:
        sums: sum of the values of each cluster, (n,).
        sizes: number of values of each cluster, (n,).
    """
    sums, sizes = np.asarray(sums, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    mean, n = sums.sum() / sizes.sum(), len(sums)
    spread = np.square(sums - mean * sizes).sum() * n / (n - 1) if n > 1 else np.nan
    return float(mean), float(np.sqrt(spread) / sizes.sum())


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Compute Student's t interval of the mean of 1-D values; NaN for a single value.

    Returns: both ends of the interval.
    """
    mean, std = mean_std(values)
    n = np.size(values)
    return _student(mean, std / math.sqrt(n), n - 1, level)


def difference_interval(values: ArrayLike, others: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Compute Welch's interval of the mean of 1-D `values` minus the mean of `others` (Welch 1947).

    The interval assumes neither paired values nor equal variances. The ends are NaN if `values` or `others` is a single
    value. For paired values, use `mean_interval` of the differences.

    Returns: both ends of the interval.
    """
    (mean, std), (other, other_std) = mean_std(values), mean_std(others)
    n, m = np.size(values), np.size(others)
    first, second = std**2 / n, other_std**2 / m
    squares = first**2 / max(n - 1, 1) + second**2 / max(m - 1, 1)
    # if both variances are 0, any value is correct
    freedom = (first + second) ** 2 / squares if squares > 0 else n + m - 2
    return _student(mean - other, math.sqrt(first + second), freedom, level)


def _student(mean: float, error: float, freedom: float, level: float) -> tuple[float, float]:
    margin = float(stdtrit(freedom, (1 + level) / 2)) * error
    return mean - margin, mean + margin


def bootstrap_sums(units: ArrayLike, resamples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Compute sums over units resampled with replacement; (n_units, K) to (resamples, K).

    The same seed and number of units give the same resamples for any data.

    Args:
        units: the contribution of each unit to K sums, (n_units, K).
    """
    units = np.asarray(units, dtype=np.float64)
    n = len(units)
    generator = np.random.Generator(np.random.Philox(seed))
    sums = np.empty((resamples, units.shape[1]))
    rows = max(1, CHUNK // n)
    for start in range(0, resamples, rows):
        # Counts of randomly drawn indices are multinomial. Drawing and counting indices is seven times as fast as
        # `Generator.multinomial`.
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
    """Compute the mean of a statistic over systems in each resample of their units, (resamples,).

    Each system, (n_units, K), is usually one seed of a recipe. All systems must have the same units in the same order.
    All systems share the resampled units, as do all calls with the same seed and number of units.

    Args:
        statistic: computes a metric, (...), from sums, (..., K).
    """
    sums = bootstrap_sums(np.hstack([*systems]), resamples, seed)
    ends = np.cumsum([system.shape[1] for system in systems])
    return np.mean([statistic(each) for each in np.split(sums, ends[:-1], axis=1)], axis=0)


def percentile_interval(replicates: ArrayLike, level: float = 0.95, n: float = math.inf) -> tuple[float, float]:
    """Compute the percentile interval of bootstrap replicates (Efron and Tibshirani 1993, chapter 13).

    If `n` is given, the result is the expanded interval (Hesterberg 2015, section 5.2). The expanded interval is wider,
    because it uses Student's t with n − 1 degrees of freedom. The expanded interval also corrects the variance of
    resamples, which is too small by the factor (n − 1) / n. Without `n`, an interval from twenty units contains the
    true value less often than `level`.

    Args:
        replicates: values of the statistic, (resamples,).
        n: number of units or blocks, at least 2.

    Returns: both ends of the interval.
    """
    z = (
        float(stdtrit(n - 1, (1 + level) / 2)) * math.sqrt(n / (n - 1))
        if n < math.inf
        else float(ndtri((1 + level) / 2))
    )
    low, high = np.quantile(np.asarray(replicates), ndtr([-z, z]))
    return float(low), float(high)


def paired_test(difference: float, replicates: ArrayLike) -> float:
    """Compute the two-sided p-value of a difference on the same units (Berg-Kirkpatrick et al. 2012, figure 1).

    The p-value is the share of resamples that deviate from the observed difference by at least its absolute value. The
    observed sample counts as one of the resamples, so p is at least 1 / (resamples + 1). Replicates that are NaN,
    because the statistic is undefined, are ignored.

    Args:
        replicates: the difference in each resample: `bootstrap` of one system minus `bootstrap` of the other system.
    """
    strays = np.abs(np.asarray(replicates, dtype=np.float64) - difference)
    # If the metric is a share, many resamples deviate by exactly the observed difference, up to rounding errors.
    strays = strays[~np.isnan(strays)] >= abs(difference) * (1 - 1e-9)
    return (1 + int(strays.sum())) / (strays.size + 1)
