"""Scaling laws: the loss of language models as a function of model size and training tokens.

The laws are those of Kaplan et al. 2020 (arXiv 2001.08361) and Hoffmann et al. 2022 (arXiv 2203.15556).

Symbols: n models, N weights used per token, D training tokens, C = 6ND floating-point operations.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from retable.metrics.intervals import percentile_interval

DELTA = 1e-3  # The δ of the Huber loss (Hoffmann et al. 2022, section 3.3).
# Starting points of the search (Hoffmann et al. 2022, appendix D.3): a grid of log A, log B, log E, α and β.
STARTS = np.array([*product(*[range(0, 30, 5)] * 2, np.arange(-1, 1.5, 0.5), *[np.arange(0, 2.5, 0.5)] * 2)])
BEST = 40  # The search runs from this many starting points, those with the lowest loss.
FEWEST = 3  # A fit needs this many different model sizes, and this many different token counts.


class Law(NamedTuple):
    """A law L(N, D) = E + A / N^α + B / D^β, in nats per token."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, N: ArrayLike, D: ArrayLike) -> NDArray[np.float64]:
        N, D = np.asarray(N, np.float64), np.asarray(D, np.float64)
        return self.E + self.A / N**self.alpha + self.B / D**self.beta

    @property
    def exponent(self) -> float:
        """Return the exponent a of the optimal size N ∝ C^a (Hoffmann et al. 2022, equation 4).

        The exponent of the optimal D is 1 − a.
        """
        return self.beta / (self.alpha + self.beta)

    @property
    def decay(self) -> float:
        """Return γ, where the lowest loss for C operations is E + k / C^γ.

        The form E + k / C^γ follows from equation 4 of Hoffmann et al. 2022.
        """
        return self.alpha * self.beta / (self.alpha + self.beta)

    def best_size(self, C: ArrayLike) -> NDArray[np.float64]:
        """Return the size N with the lowest loss for C operations (Hoffmann et al. 2022, eq. 4)."""
        scale = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        return scale * (np.asarray(C, np.float64) / 6) ** self.exponent


HOFFMANN = Law(E=1.69, A=406.4, B=410.7, alpha=0.34, beta=0.28)  # From Hoffmann et al. 2022, appendix D.3, equation 10.
NUMBERS = (*Law._fields, "decay", "exponent")  # The law's parameters, and the exponents that follow from them.


def fit_law(N: ArrayLike, D: ArrayLike, losses: ArrayLike, starts: NDArray[np.float64] = STARTS) -> Law:
    """Fit the law to sizes N, tokens D and losses, (n,) each (Hoffmann et al. 2022, section 3.3).

    The fit minimises the sum of the Huber losses of the errors in log L. L-BFGS starts at the `BEST` rows of `starts`,
    (k, 5), with the lowest sums.

    Departures: the paper searches from all starts, and minimises the mean of the Huber losses. The mean of the Huber
    losses is so small that L-BFGS stops too early (Besiroglu et al. 2024, arXiv 2404.10102). Retable minimises the sum
    of the Huber losses, in units of δ².

    Raises: ValueError: there are fewer models than parameters of the law.
    """
    n, d, log_losses = (np.log(np.asarray(each, np.float64)) for each in (N, D, losses))
    if len(n) < starts.shape[1]:
        raise ValueError(f"{len(n)} models; a law of {starts.shape[1]} parameters needs as many models or more")
    # Centring log N and log D reduces the correlation of log A with α, and of log B with β.
    n_mean, d_mean = n.mean(), d.mean()
    centred = starts - np.stack([starts[:, 3] * n_mean, starts[:, 4] * d_mean, *np.zeros((3, len(starts)))], axis=1)
    points = n - n_mean, d - d_mean, log_losses
    order = np.argsort([_huber(theta, *points)[0] for theta in centred], kind="stable")
    options = {"maxiter": 1000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-7}
    results = [minimize(_huber, centred[i], points, jac=True, method="L-BFGS-B", options=options) for i in order[:BEST]]
    a, b, e, alpha, beta = min(results, key=lambda each: each.fun).x
    A, B, E = np.exp([a + alpha * n_mean, b + beta * d_mean, e])
    return Law(*map(float, (E, A, B, alpha, beta)))


def _huber(
    theta: NDArray[np.float64], n: NDArray[np.float64], d: NDArray[np.float64], log_losses: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Compute the sum of Huber losses, in units of δ², and its gradient.

    The gradient is with respect to log A, log B, log E, α and β.
    """
    a, b, e, alpha, beta = theta
    terms = np.stack([a - alpha * n, b - beta * d, np.full_like(n, e)])
    off = (logsumexp(terms, axis=0) - log_losses) / DELTA
    slope = np.clip(off, -1, 1)
    of_terms = softmax(terms, axis=0) * slope / DELTA
    value = np.where(np.abs(off) <= 1, off**2 / 2, np.abs(off) - 0.5).sum()
    by_a, by_b, by_e = of_terms.sum(axis=1)
    return float(value), np.array([by_a, by_b, by_e, -of_terms[0] @ n, -of_terms[1] @ d])


def resampled_laws(
    N: ArrayLike, D: ArrayLike, losses: ArrayLike, law: Law, resamples: int = 200, seed: int = 0
) -> list[Law]:
    """Fit a law to each of several resamples of the models, starting at `law`.

    A resample consists of models that are drawn with replacement.

    A resample with fewer than `FEWEST` different N or fewer than `FEWEST` different D is drawn again.

    Raises: ValueError: all models together have fewer than `FEWEST` different N or different D.
    """
    N, D, losses = (np.asarray(each, np.float64) for each in (N, D, losses))
    if (fewest := min(len({*N}), len({*D}))) < FEWEST:
        raise ValueError(f"{fewest} different model sizes or token counts; a law needs {FEWEST} of each, or more")
    generator = np.random.Generator(np.random.Philox(seed))
    start = np.array([[np.log(law.A), np.log(law.B), np.log(law.E), law.alpha, law.beta]])
    starts = np.concatenate([start, start - [0, 0, 0.5, 0, 0]])  # starting points: `law`, and `law` with a smaller E
    laws = list[Law]()
    while len(laws) < resamples:
        drawn = generator.integers(len(N), size=len(N))
        if min(len({*N[drawn]}), len({*D[drawn]})) >= FEWEST:
            laws.append(fit_law(N[drawn], D[drawn], losses[drawn], starts))
    return laws


def law_interval(laws: list[Law], number: str) -> tuple[float, float]:
    """Compute the 95 % interval, over resamples, of one parameter or exponent of the law.

    Args:
        laws: the law fitted to each resample.
        number: the name of an attribute of `Law`, such as `E` or `alpha`.
    """
    return percentile_interval([getattr(law, number) for law in laws])


def law_metrics(law: Law, laws: list[Law]) -> dict[str, float]:
    """Return the fitted NUMBERS, their standard errors and their 95 % intervals over resamples.

    The metrics are called `law/<part>/<number>`, where `<part>` is `fit`, `standard_error`, `low` or `high`.
    """
    metrics: dict[str, float] = {}
    for number in NUMBERS:
        low, high = law_interval(laws, number)
        error = float(np.std([getattr(each, number) for each in laws], ddof=1))
        parts = {"fit": getattr(law, number), "standard_error": error, "low": low, "high": high}
        metrics |= {f"law/{part}/{number}": value for part, value in parts.items()}
    return metrics


class Parabola(NamedTuple):
    """The loss for a fixed number of operations C, as a parabola in log N.

    `size` is the N with the lowest loss, and `loss` is this loss. `size` and `loss` are NaN if the minimum is outside
    the trained sizes.
    """

    curve: Polynomial
    size: float
    loss: float


def fit_parabola(N: ArrayLike, losses: ArrayLike) -> Parabola:
    """Fit the parabola of an isoFLOP curve by least squares (Hoffmann et al. 2022, section 3.2).

    Raises: ValueError: there are fewer than three sizes.
    """
    x = np.log(np.asarray(N, np.float64))
    if len({*x}) < 3:
        raise ValueError(f"{len({*x})} sizes; a parabola needs three or more")
    curve = Polynomial.fit(x, np.asarray(losses, np.float64), 2)
    bend = curve.deriv(2)(x[0])
    vertex = float(curve.deriv().roots()[0]) if bend > 0 else np.nan
    if not x.min() <= vertex <= x.max():
        return Parabola(curve, np.nan, np.nan)
    return Parabola(curve, float(np.exp(vertex)), float(curve(vertex)))
