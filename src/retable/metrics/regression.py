"""Straight lines through points, by least squares: on logarithms they give exponents and rates of decay."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import linregress, t


class Line(NamedTuple):
    """y = intercept + slope · x; `low` and `high` bound the slope's 95 % interval, `r2` is the share explained."""

    slope: float
    intercept: float
    low: float
    high: float
    r2: float


def fit_line(x: ArrayLike, y: ArrayLike) -> Line:
    """The least-squares line through points x (n,) and y (n,), and Student's interval of its slope.

    ValueError for fewer than three points, which leave no degree of freedom to judge the fit by.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(x) < 3:
        raise ValueError(f"{len(x)} points; a line with an interval needs three or more")
    fit = linregress(x, y)
    margin = t.ppf(0.975, len(x) - 2) * fit.stderr
    return Line(*map(float, (fit.slope, fit.intercept, fit.slope - margin, fit.slope + margin, fit.rvalue**2)))


def fit_power(x: ArrayLike, y: ArrayLike) -> Line:
    """The exponent of y = c · x^slope as the slope of log y against log x; `intercept` is log c. All above 0."""
    return fit_line(np.log(x), np.log(y))
