"""Mixtures of language models: averages of their probabilities, with fitted or equal weights.

Jelinek and Mercer fit the weights in "Interpolated Estimation of Markov Source Parameters from Sparse Data" (1980).
Mikolov mixes a Kneser-Ney 5-gram, a cache and RNNs in this way (PhD thesis "Statistical Language Models Based on Neural
Networks", 2012, Table 4.1). A mixture of similar systems with equal weights is an ensemble.

Dimensions: S systems, N tokens.

System C9 of docs/systems.yaml.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from retable.core.systems import LanguageModel

MOST_PASSES = 10_000  # maximum number of EM passes


class Mixture:
    """A weighted average of systems' probabilities, with weights (S,) that sum to 1.

    The systems must have the same tokens with the same ids.

    Raises: ValueError: a weight is negative, the weights do not sum to 1, or the numbers of weights and systems differ.
    """

    def __init__(self, systems: Sequence[LanguageModel], weights: Sequence[float] | np.ndarray):
        self.systems, self.weights = list(systems), np.asarray(weights, np.float64)
        if self.weights.shape != (len(self.systems),) or (self.weights < 0).any() or abs(self.weights.sum() - 1) > 1e-6:
            raise ValueError(f"{len(self.systems)} systems need one weight each, with sum 1, but got {self.weights}")
        self.protocol = " + ".join(dict.fromkeys(system.protocol for system in self.systems))

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of each token of a stream (N,), in nats, float64 (N,)."""
        return log_average(np.stack([system.log_prob(tokens) for system in self.systems]), self.weights)


def log_average(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the log of the weighted average probability, (N,), from log-probabilities (S, N) in nats.

    Args:
        weights: non-negative, (S,), sum 1.
    """
    return logsumexp(log_probs, b=weights[:, None], axis=0)


def fit_weights(log_probs: np.ndarray, tolerance: float = 1e-7) -> np.ndarray:
    """Fit mixture weights by EM on held-out text.

    Tokens to which all systems assign probability 0 are ignored. The log-likelihood is concave in the weights, so the
    fit is a global optimum. The steepest slope bounds how much any other weights can improve the log-likelihood. If
    systems are nearly equal, EM may need more than `MOST_PASSES` passes to converge. If EM stops after `MOST_PASSES`
    passes, the fit is within ln S / `MOST_PASSES` nats of the optimum, because n passes of EM end within ln S / n nats
    of the optimum.

    Args:
        log_probs: log-probability of each token under each system, (S, N), in nats.
        tolerance: stop when no other weights can improve the mean log-probability by more than `tolerance` nats per
            token.

    Returns: weights, (S,), non-negative, sum 1.
    Raises: ValueError: a log-probability is NaN or +infinity.
    Memory: twice the size of `log_probs`.
    """
    best = log_probs.max(axis=0)
    if not (best < np.inf).all():
        raise ValueError("a token's log-probability is NaN or infinite")
    if (impossible := np.isneginf(best)).any():
        log_probs, best = log_probs[:, ~impossible], best[~impossible]
    ratios = np.exp(log_probs - best)
    weights = np.full(len(ratios), 1 / len(ratios))
    for _ in range(MOST_PASSES if ratios.size else 0):
        gains = ratios @ (1 / (weights @ ratios)) / ratios.shape[1]  # log-likelihood slopes, with weighted mean 1
        if gains.max() - 1 <= tolerance:
            return weights
        weights *= gains
        weights /= weights.sum()
    return weights
