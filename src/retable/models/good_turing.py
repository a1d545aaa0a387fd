"""C1: Katz's back-off n-gram model, with the counts discounted by Good and Turing's estimate.

S. M. Katz, "Estimation of Probabilities from Sparse Data for the Language Model Component of a Speech Recognizer",
IEEE Transactions on Acoustics, Speech, and Signal Processing 35 (1987); Chen and Goodman 1998, section 2.4. What these
leave open is as in SRILM's `ngram-count`, from which the published perplexities come: unigrams, and n-grams seen more
than 7 times, keep their counts; n-grams of three words and more are left out if they are seen once; where the counts of
counts give no sound discount for a count, it stays as it is.
Departure: where a context's words take all of its probability and others may follow, its total is one more, of orders
without discounts too. SRILM leaves words without probability there.
"""

import numpy as np

from retable.core.settings import PositiveInt
from retable.models.counting import Counts
from retable.models.ngram import BackoffModel


class GoodTuring(BackoffModel):
    """Back-off n-gram model over token ids: a listed n-gram has its discounted share, others that of a lower order.

    `minimum` is the count from which n-grams of three words and more are listed.
    """

    largest = 7  # the count up to which n-grams of two words and more are discounted; Katz's k, which he set to 5

    def __init__(self, vocab_size: PositiveInt, order: PositiveInt, boundary: int, minimum: PositiveInt = 2):
        super().__init__(vocab_size, order, boundary)
        self.minimum = minimum

    def estimate(self, tokens: np.ndarray) -> None:
        super().estimate(tokens)
        self._compact()

    def _shared(self, n: int, counts: np.ndarray) -> tuple[int, np.ndarray]:
        return n, ratios(counts, self.largest if n else 0)

    def _estimate(
        self, part: Counts, lower: np.ndarray, shared: tuple[int, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        n, ratio = shared
        listed = part.counts >= (self.minimum if n > 1 else 1)
        discounted = listed * part.counts * ratio[np.minimum(part.counts, len(ratio) - 1)]
        total, seen = part.of_context(part.counts), part.of_context(part.counts > 0)
        spent = part.of_context(discounted) > total * (1 - 1e-6)
        share = discounted / (total + (spent & (seen < self.vocab_size)))[part.contexts]

        left, over = 1 - part.of_context(share), 1 - part.of_context(np.where(listed, lower, 0))
        all_listed = part.of_context(listed) == self.vocab_size  # no other word could have what is left
        share /= np.where(all_listed, 1 - left, 1)[part.contexts]
        backoff = np.where(all_listed, 1, left) / np.where(all_listed, 1, over)

        unlisted = backoff[0] / self.vocab_size if n == 0 else np.nan
        return np.where(listed, share, unlisted), backoff


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
