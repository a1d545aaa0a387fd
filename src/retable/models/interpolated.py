"""Interpolated n-gram models: Jelinek-Mercer, Witten-Bell and absolute discounting.

Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998), sections 2.3, 2.5 and 2.6.
As in `KneserNey`, counts have no cut-off, and unigrams are interpolated with the uniform distribution.

System C1 of docs/systems.yaml.
"""

import numpy as np

from retable.models.counting import Counts
from retable.models.ngram import Interpolated, NGrams

BUCKETS = 64


class WittenBell(Interpolated):
    """An n-gram model that gives lower orders more weight after contexts with many distinct next words.

    weight(h) = N(h) / (c(h) + N(h)), where N(h) is the number of distinct words after h.
    """

    def _shares(self, part: Counts, shared: None) -> tuple[np.ndarray, np.ndarray]:
        total = part.of_context(part.counts) + part.of_context(part.counts > 0)
        return part.counts / total[part.contexts], part.part_of_context(part.counts > 0, total)


class AbsoluteDiscounting(Interpolated):
    """An n-gram model that subtracts D = n₁ / (n₁ + 2 n₂) from every count.

    For each order, n₁ n-grams occur exactly once and n₂ exactly twice. If n₁ is 0, D is 1/2, because D = 0 would leave
    no probability for unseen words.
    """

    def _shared(self, n: int, counts: np.ndarray) -> float:
        once, twice = (np.count_nonzero(counts == k) for k in (1, 2))
        return once / (once + 2 * twice) if once else 0.5

    def _shares(self, part: Counts, shared: float) -> tuple[np.ndarray, np.ndarray]:
        discount = (part.counts > 0) * shared
        total = part.of_context(part.counts)
        return (part.counts - discount) / total[part.contexts], part.part_of_context(discount, total)


class JelinekMercer(Interpolated):
    """An n-gram model with p(w | h) = λ c(hw) / c(h) + (1 - λ) p(w | h'), where h' is h without its first word.

    There is one λ for each length of h and each bucket of counts c(h), where bucket limits are powers of 2. EM fits the
    λs to the last tenth of the text, with n-gram counts of the first nine tenths. After that, the model counts the
    whole text, and keeps the λs. A context that does not occur in the text has λ = 0.
    """

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (length,), and discard any earlier estimate.

        Estimation takes twice as long as for other n-gram models, and needs 50 more bytes of memory per held-out token
        and order.
        """
        cut = -(-len(tokens) * 9 // 10)  # if `cut` is inside a sentence, the sentence's end is held out
        self.lambdas = self._fit(tokens[:cut], self._words(tokens[cut:]))
        super().estimate(tokens)

    def _shared(self, n: int, counts: np.ndarray) -> np.ndarray:
        return self.lambdas[n]

    def _shares(self, part: Counts, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = part.of_context(part.counts)
        own = shared[bucket(total)]
        return own[part.contexts] * part.counts / total[part.contexts], 1 - own

    def _fit(self, text: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """Fit λ per order and bucket, float64 (order, BUCKETS), by EM on N held-out words.

        A pseudo-count of ½ for each of the two outcomes keeps λ strictly between 0 and 1. A bucket without held-out
        contexts has the λ of the next lower bucket. Bucket 0 is for contexts that the text does not contain, and has λ
        = 0.
        """
        levels = self._count(text)
        self.tables = [NGrams(level.keys, np.empty(0), np.empty(0)) for level in levels]  # `_walk` needs only keys
        buckets = np.zeros((self.order, len(held_out)), np.int64)
        estimates = np.zeros((self.order + 1, len(held_out)))  # row 0: uniform distribution; row n: order n
        estimates[0] = 1 / self.vocab_size
        walk = [(np.zeros_like(held_out), held_out), *self._walk(held_out)]  # per order: contexts' and n-grams' nodes
        for n, (level, (contexts, nodes)) in enumerate(zip(levels, walk, strict=True)):
            total = level.of_context(level.counts)
            known, seen = np.flatnonzero(contexts >= 0), np.flatnonzero(nodes >= 0)
            buckets[n, known] = bucket(total[contexts[known]])
            estimates[n + 1, seen] = level.counts[nodes[seen]] / total[contexts[seen]]

        def of_bucket(values: np.ndarray) -> np.ndarray:
            return np.stack([np.bincount(*row, minlength=BUCKETS) for row in zip(buckets, values, strict=True)])

        ones = np.ones((1, len(held_out)))
        lambdas, change = np.full((self.order, BUCKETS), 0.5), 1.0
        while change > 1e-4:
            lambdas[:, 0] = 0
            own = np.take_along_axis(lambdas, buckets, axis=1)
            passed = np.vstack([np.cumprod(1 - own[::-1], axis=0)[::-1], ones])  # probability left after higher orders
            chosen = np.vstack([ones, own]) * passed * estimates
            chosen /= chosen.sum(axis=0)
            reached = of_bucket(chosen.cumsum(axis=0)[1:])
            before, lambdas = lambdas, (of_bucket(chosen[1:]) + 0.5) / (reached + 1)
            change = np.abs(lambdas - before)[:, 1:].max()
        filled = np.maximum.accumulate(np.where(reached > 0, np.arange(BUCKETS), 1), axis=1)
        lambdas[:, 0], filled[:, 0] = 0, 0
        return np.take_along_axis(lambdas, filled, axis=1)


def bucket(total: np.ndarray) -> np.ndarray:
    """Return the bucket of a context's count: the number of binary digits of the count, such as 3 for 4 to 7."""
    return np.frexp(total)[1]
