from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.models.ngram import KneserNey, discounts
from tests.models.counted_cases import END, Book, assert_by_the_book, estimated, n_grams, penn_treebank


class ByTheBook(Book):
    """Chen and Goodman's recursion, read off the page."""

    def __init__(self, text: list[list[int]], vocab_size: int, order: int):
        super().__init__(text, vocab_size, order)
        raw = n_grams(text, order + 1)
        for n in range(1, order):  # below the highest order: how many words an n-gram follows
            left = Counter(n_gram[1:] for n_gram in raw[n + 1])
            self.counts[n] = Counter({g: raw[n][g] if g[0] == "<s>" else left[g] for g in raw[n]})
        self.discounts = {n: self.closed_formula(self.counts[n].values()) for n in self.counts}

    @staticmethod
    def closed_formula(counts) -> list[float]:
        n1, n2, n3, n4 = (sum(count == k for count in counts) for k in (1, 2, 3, 4))
        if n1 * n2 * n3 == 0:
            return [0, 0.5, 1, 1.5]
        y = n1 / (n1 + 2 * n2)
        found = [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return found if min(found[1:]) > 0 else [0, 0.5, 1, 1.5]

    def given(self, word: int, context: tuple) -> float:
        n, lower = len(context) + 1, self.lower(word, context)
        followers = {other: self.counts[n][(*context, other)] for other in self.after.get(context, ())}
        if not followers:
            return lower
        total, count = sum(followers.values()), followers.get(word, 0)
        taken = sum(self.discounts[n][min(each, 3)] for each in followers.values())
        return (count - self.discounts[n][min(count, 3)]) / total + taken / total * lower


@st.composite
def corpora(draw):
    """A vocabulary size, sentences to train on, and others to score; word 1 is in none of the former."""
    vocab_size = draw(st.integers(3, 7))
    seen = st.lists(st.integers(2, vocab_size - 1), max_size=7)
    new = st.lists(st.integers(1, vocab_size - 1), max_size=9)
    train = draw(st.lists(seen, min_size=1, max_size=25))
    return vocab_size, train, draw(st.lists(new, min_size=1, max_size=4))


def test_discounts_by_hand():
    counts = np.repeat([1, 2, 3, 4, 9, 0], [8, 4, 2, 1, 3, 5])
    assert discounts(counts) == pytest.approx((1 / 2, 2 - 3 / 4, 3 - 4 / 4))
    assert discounts(np.array([1, 1, 2, 4])) == (0.5, 1, 1.5)  # no 3
    assert discounts(np.repeat([1, 2, 3], [9, 2, 8])) == (0.5, 1, 1.5)  # D2 below 0
    assert discounts(np.repeat([1, 2, 3], [4, 1, 1])) == (0.5, 1, 1.5)  # D2 just 0


@settings(max_examples=60)
@given(corpora(), st.integers(1, 5))
def test_probabilities_are_those_of_the_recursion(corpus, order):
    vocab_size, train, test = corpus
    model = estimated(KneserNey(vocab_size, order, END), train)
    assert_by_the_book(model, ByTheBook(train, vocab_size, order), train + test)


@settings(max_examples=40)
@given(corpora(), st.integers(1, 5))
def test_probabilities_sum_to_one_after_every_context(corpus, order):
    vocab_size, train, test = corpus
    model = estimated(KneserNey(vocab_size, order, END), train)
    for sentence in [*test, *train[:3]]:
        for length in range(len(sentence) + 1):
            log_prob = model.next_log_prob(np.array(sentence[:length], int))
            assert np.isfinite(log_prob).all() and np.exp(log_prob).sum() == pytest.approx(1, abs=1e-5)


def test_a_file_of_unsound_numbers_is_refused(tmp_path):
    model = KneserNey(8, 3, END)
    model.estimate(np.append(np.random.default_rng(0).integers(0, 8, 500), END))
    model.save(tmp_path / "model")
    # the file ends in the log-probabilities of the highest order; a float of ones only is no number
    (tmp_path / "changed").write_bytes((tmp_path / "model").read_bytes()[:-4] + b"\xff" * 4)
    model.tables[2].keys[-1] += 9 * len(model.tables[1].keys)  # in a context beyond the last
    model.save(tmp_path / "loose")
    for name in ("changed", "loose"):
        with pytest.raises(UsageError, match=name):
            model.load(tmp_path / name)


@pytest.mark.real
@pytest.mark.parametrize(("order", "validation", "test"), [(3, 157.77, 148.28), (5, 148.01, 141.19)])
def test_penn_treebank_perplexities_are_kenlms(data_dir, order, validation, test):
    """KenLM's `lmplz`, with its own <unk> besides PTB's, has 10,001 words where the corpus has 10,000."""
    found = penn_treebank(data_dir, lambda size, end: KneserNey(size, order, end))
    assert (found["valid"], found["test"]) == pytest.approx((validation, test), abs=0.01)
