"""Scaling laws: what the loss of language models owes to their size and to the text that they have read (Kaplan et al.
2020, arXiv 2001.08361; Hoffmann et al. 2022, arXiv 2203.15556).

n models; N weights that a token is multiplied with, D tokens of training, C = 6ND operations.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from retable.metrics.intervals import percentile_interval

DELTA = 1e-3  # of the Huber loss (Hoffmann et al. 2022, section 3.3)
# Where the search begins (appendix D.3): all of log A, log B, log E, α and β.
STARTS = np.array([*product(*[range(0, 30, 5)] * 2, np.arange(-1, 1.5, 0.5), *[np.arange(0, 2.5, 0.5)] * 2)])
BEST = 40  # of the starts are searched from
FEWEST = 3  # sizes, and amounts of text, that a law can be told from


class Law(NamedTuple):
    """L(N, D) = E + A / N^α + B / D^β, in nats a token."""

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
        """a of the best size for C operations, N ∝ C^a (Hoffmann et al. 2022, equation 4); that of D is 1 − a."""
        return self.beta / (self.alpha + self.beta)

    @property
    def decay(self) -> float:
        """γ of the least loss for C operations, E + k / C^γ: what equation 4 leaves of the law."""
        return self.alpha * self.beta / (self.alpha + self.beta)

    def best_size(self, C: ArrayLike) -> NDArray[np.float64]:
        """The N of the least loss for C operations (equation 4)."""
        scale = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        return scale * (np.asarray(C, np.float64) / 6) ** self.exponent


def fit_law(N: ArrayLike, D: ArrayLike, losses: ArrayLike, starts: NDArray[np.float64] = STARTS) -> Law:
    """The law of these models (n,) each (Hoffmann et al. 2022, section 3.3): the least sum of Huber losses of what
    log L is off by, found by L-BFGS from the `BEST` of the `starts` (k, 5).

    Departures: the paper searches from all starts; and the sum is in units of its δ², for the mean that the paper took
    is so small that L-BFGS ends before its time (Besiroglu et al. 2024, arXiv 2404.10102). ValueError for fewer models
    than the law has numbers.
    """
    n, d, log_losses = (np.log(np.asarray(each, np.float64)) for each in (N, D, losses))
    if len(n) < starts.shape[1]:
        raise ValueError(f"{len(n)} models; a law of {starts.shape[1]} numbers needs as many or more")
    # About their means log A and α hang together less.
    n_mean, d_mean = n.mean(), d.mean()
    centred = starts - np.stack([starts[:, 3] * n_mean, starts[:, 4] * d_mean, *np.zeros((3, len(starts)))], axis=1)
    points = n - n_mean, d - d_mean, log_losses
    order = np.argsort([_huber(theta, *points)[0] for theta in centred], kind="stable")
    options = {"maxiter": 1000, "maxfun": 10_000, "ftol": 1e-13, "gtol": 1e-7}
    found = [minimize(_huber, centred[i], points, jac=True, method="L-BFGS-B", options=options) for i in order[:BEST]]
    a, b, e, alpha, beta = min(found, key=lambda each: each.fun).x
    A, B, E = np.exp([a + alpha * n_mean, b + beta * d_mean, e])
    return Law(*map(float, (E, A, B, alpha, beta)))


def _huber(
    theta: NDArray[np.float64], n: NDArray[np.float64], d: NDArray[np.float64], log_losses: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """The sum of Huber losses, in units of δ², and its slopes by log A, log B, log E, α and β."""
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
    """The laws of resamples of the models, drawn with replacement, each searched for from `law`; resamples of fewer
    than `FEWEST` sizes or amounts of text, which tell no law, are drawn anew. ValueError where all models have fewer.
    """
    N, D, losses = (np.asarray(each, np.float64) for each in (N, D, losses))
    if (fewest := min(len({*N}), len({*D}))) < FEWEST:
        raise ValueError(f"{fewest} sizes or amounts of text; a law needs {FEWEST} of each, or more")
    generator = np.random.Generator(np.random.Philox(seed))
    start = np.array([[np.log(law.A), np.log(law.B), np.log(law.E), law.alpha, law.beta]])
    starts = np.concatenate([start, start - [0, 0, 0.5, 0, 0]])  # the law, and one with less of E
    found = list[Law]()
    while len(found) < resamples:
        drawn = generator.integers(len(N), size=len(N))
        if min(len({*N[drawn]}), len({*D[drawn]})) >= FEWEST:
            found.append(fit_law(N[drawn], D[drawn], losses[drawn], starts))
    return found


def law_interval(laws: list[Law], number: str) -> tuple[float, float]:
    """The 95 % interval of one of a law's numbers, or of its exponents, over resamples."""
    return percentile_interval([getattr(law, number) for law in laws])


class Parabola(NamedTuple):
    """Losses at C operations as a parabola in log N; `size` is the N at its vertex, NaN where that is no minimum within
    the sizes that were trained."""

    curve: Polynomial
    size: float
    loss: float


def fit_parabola(N: ArrayLike, losses: ArrayLike) -> Parabola:
    """The parabola of an isoFLOP curve (Hoffmann et al. 2022, section 3.2), by least squares. ValueError for fewer than
    three sizes."""
    x = np.log(np.asarray(N, np.float64))
    if len({*x}) < 3:
        raise ValueError(f"{len({*x})} sizes; a parabola needs three or more")
    curve = Polynomial.fit(x, np.asarray(losses, np.float64), 2)
    bend = curve.deriv(2)(x[0])
    vertex = float(curve.deriv().roots()[0]) if bend > 0 else np.nan
    if not x.min() <= vertex <= x.max():
        return Parabola(curve, np.nan, np.nan)
    return Parabola(curve, float(np.exp(vertex)), float(curve(vertex)))
