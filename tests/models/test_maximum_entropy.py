from itertools import product

import numpy as np
import pytest

from retable.models import maximum_entropy
from retable.models.maximum_entropy import MaximumEntropy, _Features, owl_qn
from tests.models.counted_cases import END, assert_distribution_after_every_context, estimated, sentences, stream


class ByTheBook:
    """A softmax over sums of weights of n-grams; each n-gram is a feature with a separate column."""

    def __init__(self, text: list[list[int]], vocab_size: int, order: int):
        self.vocab_size, self.order = vocab_size, order
        self.columns: dict[tuple, int] = {(word,): word for word in range(vocab_size)}
        for context, word in self.predictions(text):
            for n in range(len(context) + 1):
                self.columns.setdefault((*context[len(context) - n :], word), len(self.columns))
        self.weights = np.zeros(len(self.columns))
        pairs = self.predictions(text)
        self.active = np.stack([self.features(context) for context, _ in pairs])  # (tokens, V, K)
        self.words = np.array([word for _, word in pairs])

    def predictions(self, text: list[list[int]]) -> list[tuple[tuple, int]]:
        padded = [("<s>", *sentence, END) for sentence in text]
        return [(s[max(i - self.order + 1, 0) : i], s[i]) for s in padded for i in range(1, len(s))]

    def features(self, context: tuple) -> np.ndarray:
        found = np.zeros((self.vocab_size, len(self.columns)))
        for word in range(self.vocab_size):
            for n in range(len(context) + 1):
                if (column := self.columns.get((*context[len(context) - n :], word))) is not None:
                    found[word, column] = 1
        return found

    def log_prob(self, context: tuple) -> np.ndarray:
        scores = self.features(context) @ self.weights
        return scores - np.log(np.exp(scores).sum())

    def nats(self) -> tuple[float, np.ndarray]:
        scores = self.active @ self.weights
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        rows = np.arange(len(self.words))
        gradient = np.einsum("tv,tvk->k", p, self.active) - self.active[rows, self.words].sum(axis=0)
        return -np.log(p[rows, self.words]).sum(), gradient

    def fit(self, alpha: float, variance: float, rate: float) -> None:
        """Fit by proximal gradient descent with momentum (Beck and Teboulle 2009)."""
        ahead, age = self.weights.copy(), 1.0
        for _ in range(3000):
            before, self.weights = self.weights, ahead
            moved = ahead - rate * (self.nats()[1] + ahead / variance)
            self.weights = np.sign(moved) * np.maximum(np.abs(moved) - rate * alpha, 0)
            older, age = age, (1 + (1 + 4 * age**2) ** 0.5) / 2
            ahead = self.weights + (older - 1) / age * (self.weights - before)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_likelihood_and_gradient_equal_a_softmax_over_all_words(order):
    text = sentences(3, 25, 4)
    model, book = MaximumEntropy(6, order, END), ByTheBook(text, 6, order)
    features = _Features(model._count(stream(text)))
    weights = np.random.default_rng(0).normal(size=len(features.counts))
    places = {}  # column of each n-gram, by its words
    for n, level in enumerate(features.levels):
        for node, key in enumerate(level.keys.tolist()):
            context, word = divmod(key, 7)
            before = () if n == 0 else next(words for words, place in places.items() if place == (n - 1, context))
            places[(*before, "<s>" if word == 6 else word)] = (n, node)
    begins = np.cumsum([0, *(len(level.keys) for level in features.levels)])
    order_of = [begins[places[n_gram][0]] + places[n_gram][1] for n_gram in book.columns]
    book.weights = weights[order_of]
    (nats, gradient), (expected, slopes) = features.nats(weights), book.nats()
    assert nats == pytest.approx(expected)
    np.testing.assert_allclose(gradient[order_of], slopes, atol=1e-9)
    others = np.setdiff1d(np.arange(len(gradient)), order_of)  # only <s>
    assert len(others) == 1 and gradient[others] == 0


@pytest.mark.parametrize(("order", "alpha", "variance"), [(1, 0.5, 6.0), (3, 0.0, 2.0), (3, 0.5, 6.0), (3, 2.0, 6.0)])
def test_probabilities_are_those_of_the_best_weights(order, alpha, variance, monkeypatch):
    """The best weights are found by another method, with sums over all words; contexts include ones that the text
    lacks.
    """
    monkeypatch.setattr(maximum_entropy, "TOLERANCE", 1e-13)
    text = sentences(3, 25, 4)
    model, book = MaximumEntropy(6, order, END, alpha, variance), ByTheBook(text, 6, order)
    model.estimate(stream(text))
    book.fit(alpha, variance, rate=0.02)
    for length in range(3):
        for context in product(range(1, 6), repeat=length):
            expected = book.log_prob(("<s>", *context)[max(length + 2 - order, 0) :] if order > 1 else ())
            np.testing.assert_allclose(model.next_log_prob(np.array(context, int)), expected, atol=2e-4)


def test_weights_stop_where_the_corner_or_the_slope_does():
    """The minimum of Σ c (x − a)² / 2 + α |x| is at |a| − α / c with the sign of a, or at 0 if this is negative."""
    a, c = np.array([3.0, -2.0, 0.1, -0.1, 0.0]), np.array([1.0, 50.0, 2.0, 2.0, 1.0])
    found = owl_qn(lambda x: (float((c * (x - a) ** 2).sum() / 2), c * (x - a)), np.ones(5), alpha=0.5)
    np.testing.assert_allclose(found, [2.5, -1.99, 0, 0, 0], atol=1e-3)
    assert not found[2:].any()


def at_most(calls: int, function):
    """Return `function`; the test fails if it is called more often than this."""
    left = iter(range(calls))

    def counted(*arguments):
        if next(left, None) is None:
            pytest.fail(f"more than {calls} calls")
        return function(*arguments)

    return counted


@pytest.mark.parametrize("constant", [0.0, 1e3, 1e9, 1e16])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 1e3])
def test_the_search_ends_where_a_constant_hides_what_a_step_gains(constant, size):
    """The function is Σ (x − a)² / 2 plus a large constant: the result is as near to a as rounding allows, or
    nearer.
    """
    a = size * np.array([3.0, -2.0, 0.1])
    loss = at_most(20_000, lambda x: (constant + float(((x - a) ** 2).sum() / 2), x - a))
    found = owl_qn(loss, np.full(3, 0.7), alpha=0)
    assert ((found - a) ** 2).sum() / 2 <= 1e-4 * (a**2).sum() + 1e-4 * constant


def test_the_search_ends_where_there_is_no_minimum():
    assert owl_qn(at_most(20_000, lambda x: (-float(x.sum()), -np.ones(2))), np.ones(2), alpha=0).min() > 1000


@pytest.mark.parametrize("text", [[[]], [[1]], [[1, 2]], [[1, 1, 1, 4, 4, 2]]], ids=str)
@pytest.mark.parametrize(("alpha", "variance"), [(0.5, 1e-6), (0.0, 1e-12), (1e6, 1.0), (0.0, 1e6), (0.5, 6.0)])
def test_the_shortest_texts_have_an_estimate(text, alpha, variance, monkeypatch):
    monkeypatch.setattr(_Features, "nats", at_most(60_000, _Features.nats))
    for order in (1, 2, 3):
        model = MaximumEntropy(6, order, END, alpha, variance)
        assert_distribution_after_every_context(estimated(model, text), 3)
        if alpha > 1000 or variance < 0.001:  # no weight can leave 0
            np.testing.assert_allclose(model.next_log_prob(np.array([1])), -np.log(6), atol=1e-4)
