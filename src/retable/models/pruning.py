"""Entropy-based pruning of n-gram models.

Stolcke, "Entropy-based Pruning of Backoff Language Models", DARPA Broadcast News Transcription and Understanding
Workshop (1998). An n-gram is removed if removing only this n-gram would raise perplexity by less than a given share.
After all removals, back-off weights are computed again. If an n-gram is kept, the shorter n-grams at its beginning are
kept too.

Departure: the probability of a context is its frequency in the training text. The paper computes this probability with
the model, but the lower orders of a Kneser-Ney model do not contain the probabilities of contexts (Chelba et al.,
"Study on Interaction between Entropy Pruning and Kneser-Ney Smoothing", Interspeech 2010).

System C1 of docs/systems.yaml.
"""

from collections.abc import Callable

import numpy as np

from retable.core.settings import NonNegative, PositiveInt
from retable.models.ngram import BackoffModel


class Pruned(BackoffModel):
    """The n-gram model that `estimator(vocab_size=…, boundary=…)` builds, without its least important n-grams.

    An n-gram is removed if its removal raises perplexity by less than the share `threshold`. If the estimator's model
    lists an n-gram, it must also list the n-gram without its first word, as all estimators of this project do.

    Args:
        estimator: function that builds the model to prune, such as a partial of `KneserNey`.
    """

    def __init__(
        self, vocab_size: PositiveInt, boundary: int, estimator: Callable[..., BackoffModel], threshold: NonNegative
    ):
        self.estimator = estimator(vocab_size=vocab_size, boundary=boundary)
        super().__init__(vocab_size, self.estimator.order, boundary)
        self.threshold = threshold

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (length,), then prune it, and discard any earlier estimate.

        Pruning takes about as long as estimation, and needs 60 bytes of memory per distinct n-gram.
        """
        self.estimator.estimate(tokens)
        self.tables = list(self.estimator.tables)
        self._prune(self._words(tokens))
        self._compact()

    def _prune(self, words: np.ndarray) -> None:
        """Remove n-grams from the model, and compute all back-off weights again.

        p is the probability of an n-gram's last word after its context h; q is the probability of the same word after h
        without its first word. `left` and `over` are the sums of p and of q over all words that are not listed after h.
        The back-off weight of h is `left` / `over`.
        """
        walk = zip(self._walk(words), self.tables[:-1], strict=True)
        seen = [np.bincount(h[h >= 0], minlength=len(table.keys)) for (h, _), table in walk]
        levels, kept = [], []
        suffixes = np.zeros(self.radix, np.int64)
        for n in range(1, self.order):
            h, last = np.divmod(self.tables[n].keys, self.radix)
            suffixes = self._find(n, suffixes[h], last)
            log_p = self.tables[n].log_prob.astype(np.float64)
            log_q = self.tables[n - 1].log_prob[suffixes].astype(np.float64)
            log_weight = self.tables[n - 1].backoff.astype(np.float64)
            p, q = np.exp(log_p), np.exp(log_q)
            over = _rest(h, q, len(log_weight))
            left = np.exp(log_weight) * over
            log_without = np.log((left[h] + p) / (over[h] + q))  # log back-off weight without this n-gram
            divergence = p * (log_p - log_q - log_without) + left[h] * (log_weight[h] - log_without)
            kept.append(np.expm1(seen[n - 1][h] / len(words) * divergence) >= self.threshold)
            levels.append((h, suffixes, p, left))

        for n in range(self.order - 2, 0, -1):
            h = levels[n][0]
            kept[n - 1][h[kept[n]]] = True

        probability = np.exp(self.tables[0].log_prob.astype(np.float64))
        for n, ((h, suffixes, p, left), keep) in enumerate(zip(levels, kept, strict=True), start=1):
            q = probability[suffixes]  # `probability` is that of the pruned lower order
            weight = (left + np.bincount(h, p * ~keep, len(left))) / _rest(h, q * keep, len(left))
            probability = np.where(keep, p, weight[h] * q)
            listed = np.where(keep, self.tables[n].log_prob, np.float32(np.nan))
            self.tables[n] = self.tables[n]._replace(log_prob=listed)
            self.tables[n - 1] = self.tables[n - 1]._replace(backoff=np.log(weight).astype(np.float32))


def _rest(contexts: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return, for each of `size` contexts, 1 minus the sum of its values, but at least 1e-12."""
    return np.maximum(1 - np.bincount(contexts, values, size), 1e-12)
