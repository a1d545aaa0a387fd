from collections import Counter

import numpy as np
import pytest

from retable.models.good_turing import GoodTuring, ratios
from tests.models.counted_cases import END, Book, assert_by_the_book, estimated, penn_treebank, sentences, stream


class ByTheBook(Book):
    """Katz's recursion, read off the page; `ratio` is the share of a count that stays."""

    def __init__(self, text: list[list[int]], vocab_size: int, order: int, minimum: int):
        super().__init__(text, vocab_size, order)
        self.minimum = minimum
        self.ratio = {n: self.closed_formula(self.counts[n], 7 if n > 1 else 0) for n in self.counts}

    @staticmethod
    def closed_formula(counts: Counter, k: int) -> list[float]:
        n = Counter(counts.values())
        while k and n[k + 1] == 0:
            k -= 1
        found = [1.0] * 1000
        for r in range(1, k + 1) if n[1] else ():
            if n[r] == 0:
                continue
            star, common = (r + 1) * n[r + 1] / n[r], (k + 1) * n[k + 1] / n[1]
            if common < star / r < 1:
                found[r] = (star / r - common) / (1 - common)
        return found

    def given(self, word: int, context: tuple) -> float:
        n, seen = len(context) + 1, self.after.get(context)
        if not seen:
            return self.lower(word, context)
        minimum = self.minimum if n > 2 else 1
        kept = {w: count * self.ratio[n][count] for w, count in seen.items() if count >= minimum}
        total = sum(seen.values())
        if sum(kept.values()) > total * (1 - 1e-6) and len(seen) < self.vocab_size:
            total += 1
        if len(kept) == self.vocab_size:
            return kept[word] / sum(kept.values())
        if word in kept:
            return kept[word] / total
        rest = sum(self.lower(other, context) for other in range(self.vocab_size) if other not in kept)
        return (1 - sum(kept.values()) / total) * self.lower(word, context) / rest


@pytest.mark.parametrize(
    ("n", "largest", "expected"),  # n: how many are seen once, twice and so on
    [
        ([10, 4, 2], 2, [0.2 / 0.4, 0.15 / 0.4, 1]),  # 0.8 and 0.75, less 0.6 that they have in common
        ([10, 4, 2], 5, [0.2 / 0.4, 0.15 / 0.4, 1, 1, 1, 1]),  # none is seen four times or more
        ([20, 12, 6, 3], 3, [1, 0.15 / 0.4, (2 / 3 - 0.6) / 0.4, 1]),  # 24 would be discounted to more than 20
        ([0, 4, 2, 1], 3, [1, 1, 1, 1]),
        ([3, 9, 2, 1], 3, [1, 1, 1, 1]),  # 4/3 in common
        ([10, 4, 2], 0, [1]),
    ],
)
def test_ratios_by_hand(n, largest, expected):
    counts = np.repeat(np.arange(len(n) + 1), [5, *n])
    assert ratios(counts, largest)[1:] == pytest.approx(expected)


def test_what_is_taken_off_is_as_much_as_is_seen_once():
    """Katz's constraint, from which the ratios come: what unseen n-grams get is Good and Turing's n₁."""
    counts = np.random.default_rng(0).zipf(1.6, 20000)
    ratio = ratios(counts, 7)
    assert ratio[1:8].max() < 1
    taken = (counts * (1 - ratio[np.minimum(counts, 8)])).sum()
    assert taken == pytest.approx((counts == 1).sum())


@pytest.mark.parametrize(
    ("order", "minimum", "n", "n_words"),
    [(1, 2, 40, 4), (2, 2, 3, 3), (3, 2, 150, 8), (3, 1, 150, 8), (4, 2, 40, 4), (4, 3, 150, 8)],
)
def test_probabilities_are_those_of_the_recursion(order, minimum, n, n_words):
    vocab_size = n_words + 2  # a word is never seen
    train, test = sentences(n, n, n_words), sentences(n + 1, 12, n_words + 1)
    model = estimated(GoodTuring(vocab_size, order, END, minimum), train)
    assert_by_the_book(model, ByTheBook(train, vocab_size, order, minimum), train[:20] + test)


def test_what_is_seen_once_is_left_out():
    model = GoodTuring(5, 3, END)
    model.estimate(stream([[1, 2, 3], [1, 2], [4]]))
    assert [len(table.keys) for table in model.tables] == [6, 7, 1]  # <s> 1 2 alone is seen twice
    np.testing.assert_array_equal(model.tables[1].keys[model.tables[2].keys // 6], [5 * 6 + 1])
    assert model.tables[2].keys % 6 == [2]


@pytest.mark.real
@pytest.mark.parametrize(("order", "published"), [(3, 165.2), (5, 162.3)])
def test_penn_treebank_perplexity_is_the_published_one(order, published, data_dir):
    """Mikolov 2012, Table 4.1: GT3 and GT5, by SRILM."""
    found = penn_treebank(data_dir, lambda size, end: GoodTuring(size, order, end))
    assert found["test"] == pytest.approx(published, abs=0.05)
