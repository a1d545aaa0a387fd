"""Additive smoothing of n-grams: add-one (Laplace, k = 1) and add-k (Lidstone).

Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998), section 2.1: p(w | h) =
(c(hw) + k) / (c(h) + k V). Here h is the sequence of the `order` − 1 words before w. Near the start of a sentence, h is
shorter and starts with `<s>`. The probabilities are stored as a back-off model, although add-k smoothing uses only the
longest possible context of each word. A context of fewer than `order` − 1 words that does not start with `<s>` has
back-off weight 1, and every word after it has probability 1/V. The back-off weight of all other contexts is k V / (c(h)
+ k V).

V vocabulary.

System C1 of docs/systems.yaml.
"""

import numpy as np

from retable.core.settings import Positive, PositiveInt
from retable.models.counting import Counts, whole_contexts
from retable.models.ngram import BackoffModel, NGrams

GRID = 2.0 ** (-np.arange(97) / 4)  # values of k to try, from 1 down to 6e-8


class Additive(BackoffModel):
    """An n-gram model over token ids that adds k to every count.

    If `k` is None, the model counts the first nine tenths of the text, and sets k to the value in `GRID` that gives the
    last tenth the highest probability. After that, the model counts the whole text, and adds this k.

    Args:
        order: number of tokens in the longest n-gram.
        boundary: the id that ends a sentence.
        k: number added to each count, above 0.
    """

    def __init__(self, vocab_size: PositiveInt, order: PositiveInt, boundary: int, k: Positive | None = None):
        super().__init__(vocab_size, order, boundary)
        self.given, self.k = k, k or 1.0

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (length,), and discard any earlier estimate.

        If the model was created without `k`, estimation takes twice as long, because k is fitted first.
        """
        if self.given is None:
            cut = -(-len(tokens) * 9 // 10)  # if `cut` is inside a sentence, the sentence's end is held out
            self.k = self._fit(tokens[:cut], self._words(tokens[cut:]))
        super().estimate(tokens)

    def _count(self, tokens: np.ndarray) -> list[Counts]:
        levels = super()._count(tokens)
        self.whole = whole_contexts(levels)
        return levels

    def _shared(self, n: int, counts: np.ndarray) -> int:
        return self.whole[n]

    def _estimate(self, part: Counts, lower: np.ndarray, shared: int) -> tuple[np.ndarray, np.ndarray]:
        whole = np.arange(part.first, part.first + part.n_contexts) >= shared
        added = self.k * self.vocab_size
        total = part.of_context(part.counts) + added
        probability = np.where(whole[part.contexts], (part.counts + self.k) / total[part.contexts], 1 / self.vocab_size)
        return probability, np.where(whole, added / total, 1)

    def _fit(self, text: np.ndarray, held_out: np.ndarray) -> float:
        """Return the k that gives `held_out` (length,) the highest probability, or 1 if `held_out` is empty."""
        levels = self._count(text)
        self.tables = [NGrams(level.keys, np.empty(0), np.empty(0)) for level in levels]  # `_walk` needs only keys
        counts, totals = np.zeros((2, len(held_out)))  # counts of held-out words, and counts of their contexts
        walk = [(np.zeros_like(held_out), held_out), *self._walk(held_out)]  # per order: contexts' and n-grams' nodes
        for level, first, (contexts, nodes) in zip(levels, self.whole, walk, strict=True):
            known = np.flatnonzero(contexts >= first)
            seen = known[nodes[known] >= 0]
            totals[known] = level.of_context(level.counts)[contexts[known]]
            counts[seen] = level.counts[nodes[seen]]
        nats = [(np.log(totals + k * self.vocab_size) - np.log(counts + k)).sum() for k in GRID]
        return float(GRID[np.argmin(nats)])
