"""Least-squares lines. On logarithms, the slope is an exponent or a decay rate."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import linregress, t


class Line(NamedTuple):
    """A fitted line y = intercept + slope · x.

    `low` and `high` bound the slope's 95 % interval; `r2` is the explained share of the variance.
    """

    slope: float
    intercept: float
    low: float
    high: float
    r2: float


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit a least-squares line through n points, with Student's t interval of the slope.

    Args:
        x, y: coordinates of the points, (n,).

    Raises: ValueError: there are fewer than three points.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 3:
        raise ValueError(f"{len(x)} points; a line with an interval needs three or more")
    fit = linregress(x, y)
    margin = t.ppf(0.975, len(x) - 2) * fit.stderr
    return Line(*map(float, (fit.slope, fit.intercept, fit.slope - margin, fit.slope + margin, fit.rvalue**2)))


def fit_power(x: ArrayLike, y: ArrayLike) -> Line:
    """Fit y = c · x^slope as a line of log y against log x; `intercept` is log c. All values must be above 0.

    Args:
        x, y: values of the points, (N,), N at least 3.
    """
    return fit_line(np.log(x), np.log(y))
