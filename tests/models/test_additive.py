import numpy as np
import pytest

from retable.models.additive import GRID, Additive
from tests.models.counted_cases import (
    END,
    Book,
    assert_by_the_book,
    assert_distribution_after_every_context,
    estimated,
    penn_treebank,
    sentences,
    stream,
    words_of,
)


class ByTheBook(Book):
    """(c(hw) + k) / (c(h) + k V)."""

    k = 1.0

    def given(self, word: int, context: tuple) -> float:
        counts = self.after[context]
        return (counts[word] + self.k) / (sum(counts.values()) + self.k * self.vocab_size)


@pytest.mark.parametrize(
    ("k", "order", "n", "n_words"),
    [(1, 1, 1, 3), (0.01, 1, 300, 8), (None, 2, 40, 4), (1, 3, 300, 8), (0.01, 5, 40, 4), (None, 5, 300, 8)],
)
def test_probabilities_are_those_of_the_closed_form(k, order, n, n_words):
    train, test = sentences(n, n, n_words), sentences(n + 1, 12, n_words + 1)  # a word is never seen
    model, book = estimated(Additive(n_words + 2, order, END, k), train), ByTheBook(train, n_words + 2, order)
    book.k = model.k
    assert_by_the_book(model, book, train[:20] + test)


@pytest.mark.parametrize(("n", "order"), [(1, 1), (5, 3), (400, 3)])
def test_every_context_of_a_tiny_vocabulary(n, order):
    assert_distribution_after_every_context(estimated(Additive(5, order, END, k=0.1), sentences(n, n, 3)), 4)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_k_is_the_likeliest_for_held_out_text(order):
    text = np.minimum(np.random.default_rng(0).geometric(0.05, (300, 9)), 40)
    text[:, 1::2] = 1 + text[:, :-1:2] % 40
    model = Additive(41, order, END)
    model.estimate(stream(text.tolist()))
    book = ByTheBook(text[:270].tolist(), 41, order)
    nats = {}
    for book.k in GRID:
        nats[book.k] = -sum(np.log(book.probability(*each)) for each in words_of(text[270:].tolist()))
    assert model.k == min(nats, key=nats.__getitem__) and (order == 1 or GRID[-1] < model.k < 1)


def test_too_little_text_to_hold_some_out():
    """k is 1, whatever an earlier text had."""
    model = Additive(41, 2, END)
    model.estimate(stream(sentences(1, 300, 40)))
    assert model.k < 1
    model.estimate(np.array([2, END]))
    assert model.k == 1


@pytest.mark.real
@pytest.mark.parametrize(("k", "perplexity"), [(None, 951.06), (1, 3307.92)])
def test_penn_treebank_is_worse_than_by_any_other_smoothing(k, perplexity, data_dir):
    """As Chen and Goodman find. The numbers are this project's own."""
    found = penn_treebank(data_dir, lambda size, end: Additive(size, 3, end, k))
    assert found["test"] == pytest.approx(perplexity, abs=0.05)
