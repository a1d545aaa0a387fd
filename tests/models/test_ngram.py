from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.models.ngram import KneserNey, discounts
from tests.models.counted_cases import END, penn_treebank, stream, words_of


class ByTheBook:
    """Chen and Goodman's recursion, read off the page, over dictionaries of tuples."""

    def __init__(self, sentences: list[list[int]], vocab_size: int, order: int):
        self.vocab_size, self.order = vocab_size, order
        padded = [("<s>", *sentence, END) for sentence in sentences]
        raw = [
            Counter(s[i : i + n] for s in padded for i in range(len(s) - n + 1) if s[i : i + n] != ("<s>",))
            for n in range(1, order + 2)
        ]
        self.counts = {order: raw[order - 1]}
        for n in range(1, order):
            left = Counter(n_gram[1:] for n_gram in raw[n])
            self.counts[n] = {g: raw[n - 1][g] if g[0] == "<s>" else left[g] for g in raw[n - 1]}
        self.discounts = {n: self.closed_formula(self.counts[n].values()) for n in self.counts}
        self.followers = defaultdict(list)
        for n, counts in self.counts.items():
            for n_gram, count in counts.items():
                self.followers[n_gram[:-1]].append((count, self.discounts[n][min(count, 3)]))

    @staticmethod
    def closed_formula(counts) -> list[float]:
        n1, n2, n3, n4 = (sum(count == k for count in counts) for k in (1, 2, 3, 4))
        if n1 * n2 * n3 == 0:
            return [0, 0.5, 1, 1.5]
        y = n1 / (n1 + 2 * n2)
        found = [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return found if min(found[1:]) > 0 else [0, 0.5, 1, 1.5]

    def probability(self, word: int, context: tuple) -> float:
        context = context[len(context) - min(len(context), self.order - 1) :]
        lower = self.probability(word, context[1:]) if context else 1 / self.vocab_size
        followers = self.followers[context]
        if not followers:
            return lower
        total = sum(count for count, _ in followers)
        n = len(context) + 1
        count = self.counts[n].get((*context, word), 0)
        share = (count - self.discounts[n][min(count, 3)]) / total
        return share + sum(discount for _, discount in followers) / total * lower


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
    model, book = KneserNey(vocab_size, order, END), ByTheBook(train, vocab_size, order)
    model.estimate(stream(train))
    expected = [np.log(book.probability(*each)) for each in words_of(train + test)]
    np.testing.assert_allclose(model.log_prob(stream(train + test)), expected, rtol=0, atol=1e-5)


@settings(max_examples=40)
@given(corpora(), st.integers(1, 5))
def test_probabilities_sum_to_one_after_every_context(corpus, order):
    vocab_size, train, test = corpus
    model = KneserNey(vocab_size, order, END)
    model.estimate(stream(train))
    for sentence in [*test, *train[:3]]:
        for length in range(len(sentence) + 1):
            log_prob = model.next_log_prob(np.array(sentence[:length], int))
            assert np.exp(log_prob).sum() == pytest.approx(1, abs=1e-5)
            assert np.isfinite(log_prob).all()


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
