"""Katz's back-off n-gram model with Good-Turing discounts.

Katz, "Estimation of Probabilities from Sparse Data for the Language Model Component of a Speech Recognizer", IEEE
Transactions on Acoustics, Speech, and Signal Processing 35 (1987); Chen and Goodman 1998, section 2.4. Details that
both papers leave open are as in SRILM's `ngram-count`, the program that computed the published perplexities. Unigrams,
and n-grams seen more than 7 times, are not discounted. N-grams of three or more words that occur only once are not part
of the model. Counts for which Good and Turing's formula gives no valid discount are not discounted either.

Departure: in SRILM, if the words seen after a context have a total probability of 1, all other words have probability
0. Here the count of such a context is increased by 1, so that other words have some probability. The count is increased
in orders without discounts too.

System C1 of docs/systems.yaml.
"""

import numpy as np

from retable.core.settings import PositiveInt
from retable.models.counting import Counts
from retable.models.ngram import BackoffModel


class GoodTuring(BackoffModel):
    """A back-off n-gram model over token ids: listed n-grams have discounted frequencies, others back off.

    `minimum` is the lowest count at which n-grams of three or more words are listed.

    Args:
        order: number of tokens in the longest n-gram.
        boundary: the id that ends a sentence.
    """

    largest = 7  # highest discounted count, except for unigrams; Katz's k, which is 5 in his paper

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
        all_listed = part.of_context(listed) == self.vocab_size  # no other word could have the remaining probability
        share /= np.where(all_listed, 1 - left, 1)[part.contexts]
        backoff = np.where(all_listed, 1, left) / np.where(all_listed, 1, over)

        unlisted = backoff[0] / self.vocab_size if n == 0 else np.nan
        return np.where(listed, share, unlisted), backoff


def ratios(counts: np.ndarray, largest: int) -> np.ndarray:
    """Return the discount factors (largest + 2,) of the counts 0, 1, … `largest`, and one for all higher counts."""
    n = np.bincount(np.minimum(counts, largest + 2), minlength=largest + 3).tolist()
    shares = np.ones(largest + 2)
    while largest and not n[largest + 1]:
        largest -= 1
    common = (largest + 1) * n[largest + 1] / n[1] if largest and n[1] else 1
    for r in range(1, largest + 1):
        turing = (r + 1) * n[r + 1] / (r * n[r]) if n[r] else 1
        if common < turing < 1:
            shares[r] = (turing - common) / (1 - common)
    return shares
