from typing import Any

import numpy as np
import pytest

from retable.models.interpolated import AbsoluteDiscounting, JelinekMercer, WittenBell
from retable.models.ngram import KneserNey
from tests.models.counted_cases import (
    END,
    Book,
    assert_by_the_book,
    estimated,
    penn_treebank,
    sentences,
    stream,
    words_of,
)

CLASSES = [WittenBell, AbsoluteDiscounting, JelinekMercer]


class ByTheBook(Book):
    """Chen and Goodman's recursion, read off the page."""

    def __init__(self, text: list[list[int]], model: Any):
        super().__init__(text, model.vocab_size, model.order)
        self.model, self.discount = model, {}
        for n, counted in self.counts.items():
            once, twice = ([*counted.values()].count(times) for times in (1, 2))
            self.discount[n - 1] = once / (once + 2 * twice) if once else 0.5

    def given(self, word: int, context: tuple) -> float:
        counts, lower = self.after[context], self.lower(word, context)
        count, total, different = counts[word], sum(counts.values()), len(counts)
        if not total:
            return lower
        if isinstance(self.model, WittenBell):
            return (count + different * lower) / (total + different)
        if isinstance(self.model, AbsoluteDiscounting):
            discount = self.discount[len(context)]
            return max(count - discount, 0) / total + discount * different / total * lower
        own = self.model.lambdas[len(context), total.bit_length()]
        return own * count / total + (1 - own) * lower


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize(("order", "n", "n_words"), [(1, 40, 4), (2, 1, 3), (3, 300, 8), (5, 300, 8)])
def test_probabilities_are_those_of_the_recursion(cls, order, n, n_words):
    train, test = sentences(n, n, n_words), sentences(n + 1, 12, n_words + 1)  # a word is never seen
    model = estimated(cls(n_words + 2, order, END), train)
    assert_by_the_book(model, ByTheBook(train, model), train[:20] + test)


def test_weights_of_interpolation_are_the_likeliest_for_held_out_text():
    """No λ can be moved without loss, of likelihood with half a pseudo-count on each side; unused ones are copies."""
    rng = np.random.default_rng(0)
    text = np.minimum(rng.geometric(0.35, (300, 9)), 8)
    text[:, 1::2] = np.where(rng.random((300, 4)) < 0.5, 1 + text[:, :-1:2] % 8, text[:, 1::2])
    model = JelinekMercer(9, 3, END)
    model.estimate(stream(text.tolist()))
    book, best = ByTheBook(text[:270].tolist(), model), model.lambdas
    held_out = words_of(text[270:].tolist())

    used = {
        (n, sum(book.after[context[len(context) - n :]].values()).bit_length())
        for _, context in held_out
        for n in range(min(len(context) + 1, 3))
    }

    def objective(lambdas: np.ndarray) -> float:
        model.lambdas = lambdas
        prior = sum(np.log(lambdas[cell]) + np.log(1 - lambdas[cell]) for cell in used if cell[1])
        return sum(np.log(book.probability(*each)) for each in held_out) + 0.5 * prior

    most = objective(best)
    assert len(used) > 12
    for n, k in np.ndindex(3, 20):
        moved = np.zeros_like(best)
        moved[n, k] = 0.02
        if k == 0:
            assert best[n, k] == 0
        elif (n, k) in used:
            assert max(objective(best + moved), objective(best - moved)) < most
        elif any((n, below) in used for below in range(1, k)):
            assert best[n, k] == best[n, k - 1]


def test_too_little_text_to_hold_some_out():
    model = JelinekMercer(4, 2, END)
    model.estimate(np.array([2, END]))
    assert set(model.lambdas[:, 1:].flatten()) == {0.5}


@pytest.mark.real
@pytest.mark.parametrize(
    ("cls", "perplexity"),
    [(KneserNey, 148.28), (JelinekMercer, 164.88), (AbsoluteDiscounting, 166.49), (WittenBell, 186.31)],
)
def test_penn_treebank_ranks_them_as_chen_and_goodman_do(cls, perplexity, data_dir):
    """Of trigram models Kneser-Ney is the best and Witten-Bell the worst by far. The numbers are this project's own."""
    found = penn_treebank(data_dir, lambda size, end: cls(size, 3, end))
    assert found["test"] == pytest.approx(perplexity, abs=0.05)
