"""C1: Katz's back-off n-gram model, with the counts discounted by Good and Turing's estimate.

S. M. Katz, "Estimation of Probabilities from Sparse Data for the Language Model Component of a Speech Recognizer",
IEEE Transactions on Acoustics, Speech, and Signal Processing 35 (1987); Chen and Goodman 1998, section 2.4. What these
leave open is as in SRILM's `ngram-count`, from which the published perplexities come: unigrams, and n-grams seen more
than 7 times, keep their counts; n-grams of three words and more are left out if they are seen once; where the counts of
counts give no sound discount for a count, it stays as it is.
Departure: where a context's words take all of its probability and others may follow, its total is one more, of orders
without discounts too. SRILM leaves words without probability there.
"""

from collections.abc import Iterator

import numpy as np

from retable.models.ngram import BackoffModel, Counts


class GoodTuring(BackoffModel):
    """Back-off n-gram model over token ids: a listed n-gram has its discounted share, others that of a lower order.

    `minimum` is the count from which n-grams of three words and more are listed.
    """

    largest = 7  # the count up to which n-grams of two words and more are discounted; Katz's k, which he set to 5

    def __init__(self, vocab_size: int, order: int, boundary: int, minimum: int = 2):
        super().__init__(vocab_size, order, boundary)
        self.minimum = minimum

    def estimate(self, tokens: np.ndarray) -> None:
        super().estimate(tokens)
        self._compact()

    def _estimates(self, levels: list[Counts]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        probability = np.array([1 / self.vocab_size])
        for n, level in enumerate(levels):
            listed = level.counts >= (self.minimum if n > 1 else 1)
            ratio = ratios(level.counts, self.largest if n else 0)
            discounted = listed * level.counts * ratio[np.minimum(level.counts, len(ratio) - 1)]
            total, seen = level.of_context(level.counts), level.of_context(level.counts > 0)
            spent = level.of_context(discounted) > total * (1 - 1e-6)
            share = discounted / (total + (spent & (seen < self.vocab_size)))[level.contexts]

            lower = np.where(listed, probability[level.suffixes], 0)
            left, over = 1 - level.of_context(share), 1 - level.of_context(lower)
            all_listed = level.of_context(listed) == self.vocab_size  # no other word could have what is left
            share /= np.where(all_listed, 1 - left, 1)[level.contexts]
            backoff = np.where(all_listed, 1, left) / np.where(all_listed, 1, over)

            unlisted = backoff[0] / self.vocab_size if n == 0 else np.nan
            probability = np.where(listed, share, unlisted)
            yield probability, backoff


def ratios(counts: np.ndarray, largest: int) -> np.ndarray:
    """What is left of counts, as a share of them: (largest + 2,), of 0, 1, … to `largest`, and of those above."""
    n = np.bincount(np.minimum(counts, largest + 2), minlength=largest + 3).tolist()
    found = np.ones(largest + 2)
    while largest and not n[largest + 1]:
        largest -= 1
    common = (largest + 1) * n[largest + 1] / n[1] if largest and n[1] else 1
    for r in range(1, largest + 1):
        turing = (r + 1) * n[r + 1] / (r * n[r]) if n[r] else 1
        if common < turing < 1:
            found[r] = (turing - common) / (1 - common)
    return found
