"""C1: additive smoothing of n-grams: every count is k more than it was; add-one with k = 1 (Laplace), add-k otherwise
(Lidstone).

S. F. Chen and J. Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998), section 2.1:
p(w | h) = (c(hw) + k) / (c(h) + k V), where h are the order − 1 words before w, or all from `<s>` on where there are
fewer. What has one order alone stands in the tables of a back-off model so: an n-gram after a context that could be
longer has 1/V, and that context the weight 1; a context that could not has the weight k V / (c(h) + k V).

V vocabulary.
"""

import numpy as np

from retable.core.settings import Positive, PositiveInt
from retable.models.counting import Counts, whole_contexts
from retable.models.ngram import BackoffModel, NGrams

GRID = 2.0 ** (-np.arange(97) / 4)  # 1 down to 6e-8


class Additive(BackoffModel):
    """N-gram model over token ids. Without a `k` that of `GRID` is taken under which the last tenth of the text is the
    likeliest, by counts of the rest; those of the whole text then take their place.
    """

    def __init__(self, vocab_size: PositiveInt, order: PositiveInt, boundary: int, k: Positive | None = None):
        super().__init__(vocab_size, order, boundary)
        self.given, self.k = k, k or 1.0

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimates the model on a stream (length,), in place of what it held; without a `k` in twice the time."""
        if self.given is None:
            cut = -(-len(tokens) * 9 // 10)  # perhaps within a sentence, whose rest is one to the words held out
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
        """The likeliest k for held-out words (length,), or 1 where there are none."""
        levels = self._count(text)
        self.tables = [NGrams(level.keys, np.empty(0), np.empty(0)) for level in levels]  # for `_walk`
        counts, totals = np.zeros((2, len(held_out)))  # of each word after its context, and of that
        walk = [(np.zeros_like(held_out), held_out), *self._walk(held_out)]  # contexts, n-grams
        for level, first, (contexts, nodes) in zip(levels, self.whole, walk, strict=True):
            known = np.flatnonzero(contexts >= first)
            found = known[nodes[known] >= 0]
            totals[known] = level.of_context(level.counts)[contexts[known]]
            counts[found] = level.counts[nodes[found]]
        nats = [(np.log(totals + k * self.vocab_size) - np.log(counts + k)).sum() for k in GRID]
        return float(GRID[np.argmin(nats)])
