"""C9: mixtures of language models, whose tokens' probabilities are averaged: with weights that held-out text gives, or
with equal ones, as of an ensemble of systems alike.

F. Jelinek and R. L. Mercer, "Interpolated Estimation of Markov Source Parameters from Sparse Data" (1980). T. Mikolov,
"Statistical Language Models Based on Neural Networks", PhD thesis (2012), Table 4.1, mixes KN5, cache and RNNs so.

S systems, N tokens.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from retable.core.systems import LanguageModel

MOST_PASSES = 10_000  # of EM


class Mixture:
    """The average of systems' probabilities, of weight (S,) each. They must have the same tokens, of the same ids."""

    def __init__(self, systems: Sequence[LanguageModel], weights: Sequence[float] | np.ndarray):
        self.systems, self.weights = list(systems), np.asarray(weights, np.float64)
        if self.weights.shape != (len(self.systems),) or (self.weights < 0).any() or abs(self.weights.sum() - 1) > 1e-6:
            raise ValueError(f"{len(self.systems)} systems need as many weights of sum 1, not {self.weights}")
        self.protocol = " + ".join(dict.fromkeys(system.protocol for system in self.systems))

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Log-probability in nats, float64 (N,), of each token of a stream (N,)."""
        return log_average(np.stack([system.log_prob(tokens) for system in self.systems]), self.weights)


def log_average(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What systems give together, nats (N,), from what each gives, nats (S, N), and its weight (S,)."""
    return logsumexp(log_probs, b=weights[:, None], axis=0)


def fit_weights(log_probs: np.ndarray, tolerance: float = 1e-7) -> np.ndarray:
    """The weights (S,) under which tokens are likeliest, from what each system gives each, nats (S, N), by EM.

    Ends within `tolerance` nats a token of the best: the likelihood is concave, so no weights can gain more than the
    steepest of its slopes. Systems that are nearly the same may need more than `MOST_PASSES`: then it ends within
    ln S / `MOST_PASSES` nats, as EM is within ln S / n after n passes. Tokens that no system holds for possible tell
    nothing of the weights. Memory: twice that of `log_probs`. ValueError for NaNs, and for infinite probabilities.
    """
    best = log_probs.max(axis=0)
    if not (best < np.inf).all():
        raise ValueError("a token's log-probability is NaN or infinite")
    if (impossible := np.isneginf(best)).any():
        log_probs, best = log_probs[:, ~impossible], best[~impossible]
    ratios = np.exp(log_probs - best)
    weights = np.full(len(ratios), 1 / len(ratios))
    for _ in range(MOST_PASSES if ratios.size else 0):
        gains = ratios @ (1 / (weights @ ratios)) / ratios.shape[1]  # the slopes; 1 on average, by weight
        if gains.max() - 1 <= tolerance:
            return weights
        weights *= gains
        weights /= weights.sum()
    return weights
