"""Pearson's correlation. Spearman's correlation is that of the `ranks` of x and y."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def moments(x: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Compute the contribution of each of n pairs to a correlation, (n, 6): 1, x, y, x², y², xy.

    x and y are standardised to mean 0 and standard deviation 1. A constant x or y is replaced by zeros.

    Raises: ValueError: x and y are empty or differ in length.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(first) != len(second) or not len(first):
        raise ValueError(
            f"{len(first)} and {len(second)} numbers; a correlation needs two lists of equal length, at least 1"
        )
    first, second = _standard(first), _standard(second)
    return np.stack([np.ones_like(first), first, second, first**2, second**2, first * second], axis=-1)


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if np.ptp(values) <= 1e-12 * np.abs(values).max():
        return np.zeros_like(values)
    centred = values - values.mean()
    return centred / centred.std()


def pearson_of_sums(sums: ArrayLike) -> NDArray[np.float64]:
    """Compute Pearson's correlation from sums of `moments`; (..., 6) to (...).

    The correlation is 0 if x or y is constant.
    """
    n, x, y, xx, yy, xy = np.moveaxis(np.asarray(sums, dtype=np.float64), -1, 0)
    x_variance, y_variance = n * xx - x**2, n * yy - y**2
    least = 1e-24 * n * np.maximum(n, 1)  # variances up to this value are rounding errors
    varies = (x_variance > least) & (y_variance > least)
    spread = np.sqrt(np.where(varies, x_variance, 1.0)) * np.sqrt(np.where(varies, y_variance, 1.0))
    return np.where(varies, (n * xy - x * y) / spread, 0.0)


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Return the ranks of 1-D values, from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
