"""Test the linear-chain CRF: sums over all tag sequences, the formulas of SGD, CRF++'s template, and crfsgd's
numbers.
"""

import os
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from retable.corpora.columns import read_tagged
from retable.models import template_crf
from retable.models.template_crf import TemplateCRF, best, features, marginals

# The template of crfsgd and CRF++ for CoNLL-2000: row and column of each value; the row is relative to the word.
TEMPLATE = [
    *("%x[-2,0]", "%x[-1,0]", "%x[0,0]", "%x[1,0]", "%x[2,0]", "%x[-1,0]/%x[0,0]", "%x[0,0]/%x[1,0]"),
    *("%x[-2,1]", "%x[-1,1]", "%x[0,1]", "%x[1,1]", "%x[2,1]"),
    *("%x[-2,1]/%x[-1,1]", "%x[-1,1]/%x[0,1]", "%x[0,1]/%x[1,1]", "%x[1,1]/%x[2,1]"),
    *("%x[-2,1]/%x[-1,1]/%x[0,1]", "%x[-1,1]/%x[0,1]/%x[1,1]", "%x[0,1]/%x[1,1]/%x[2,1]"),
]
TEXTS = [["a/X", "b/Y", "a/Y"], ["b/X"], ["b/Y", "b/X", "a/X", "c/Y"], ["c/X", "a/X"]]
LABELS = [["B", "I", "O"], ["O"], ["B", "I", "I", "O"], ["O", "B"]]


def sequences(scores, pairs):
    """Return all sequences of tags with their scores."""
    T, K = scores.shape
    rows = np.array(list(product(range(K), repeat=T)))
    return rows, scores[range(T), rows].sum(1) + pairs[rows[:, :-1], rows[:, 1:]].sum(1)


@pytest.mark.parametrize("T", [1, 2, 5])
def test_sums_are_those_over_all_sequences(T):
    rng = np.random.default_rng(T)
    scores, pairs = 3 * rng.normal(size=(T, 3)), 3 * rng.normal(size=(3, 3))
    rows, totals = sequences(scores, pairs)
    p, counts, log_z = marginals(scores, pairs)
    assert log_z == pytest.approx(np.log(np.exp(totals).sum()), abs=1e-12)
    shares = np.exp(totals - log_z)
    np.testing.assert_allclose(p, [[shares[rows[:, t] == k].sum() for k in range(3)] for t in range(T)], atol=1e-12)
    expected = np.zeros((3, 3))
    for row, share in zip(rows, shares, strict=True):
        np.add.at(expected, (row[:-1], row[1:]), share)
    np.testing.assert_allclose(counts, expected, atol=1e-12)
    assert best(scores, pairs).tolist() == rows[totals.argmax()].tolist()


def slow_loss(theta, model, texts, labels):
    """Return −log p of the tags of texts, with sums over all sequences."""
    loss = 0.0
    for words, tags in zip(texts, labels, strict=True):
        rows = [[model.places[name] for name in row if name in model.places] for row in features(words)]
        all_tags, totals = sequences(np.array([theta[row].sum(0) for row in rows]), theta[len(model.places) :])
        gold = [model.classes.index(tag) for tag in tags]
        loss += np.logaddexp.reduce(totals) - totals[(all_tags == gold).all(1)][0]
    return loss


def slow_descent(model, rate, orders, power):
    """Return θ after each step of SGD; gradients are finite differences."""
    decay, theta, found = 1 / len(TEXTS), np.zeros(model.theta.shape), []
    for n, place in enumerate(np.concatenate(orders)):

        def loss(flat, place=place):
            return slow_loss(flat.reshape(model.theta.shape), model, [TEXTS[place]], [LABELS[place]])

        eta = rate / (1 + rate * decay * n) ** power
        theta = (theta - eta * approx_fprime(theta.ravel(), loss, 1e-7).reshape(theta.shape)) * (1 - eta * decay)
        found.append(theta)
    return found


@pytest.mark.parametrize("solver", ["sgd", "averaged_sgd"])
def test_descent_is_that_of_its_formulas(solver, monkeypatch, tmp_path):
    monkeypatch.setattr(template_crf, "_calibrated", lambda *given: 0.3)
    model = TemplateCRF(solver, epochs=3, seed=5, cutoff=1)
    model.estimate(TEXTS, LABELS)
    rng = np.random.default_rng(5)
    orders = [rng.permutation(len(TEXTS)) for _ in range(3)]
    steps = slow_descent(model, 0.3, orders, 1.0 if solver == "sgd" else 0.75)
    expected = steps[-1] if solver == "sgd" else np.mean(steps[len(TEXTS) :], axis=0)
    np.testing.assert_allclose(model.theta, expected, atol=1e-5)
    model.save(tmp_path / "model")
    again = TemplateCRF(solver, epochs=3, seed=5)
    again.load(tmp_path / "model")
    assert again.label(TEXTS) == model.label(TEXTS) == LABELS
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_the_fitted_loss_cannot_fall():
    """At the fitted θ, the finite differences of the loss with its penalty are 0."""
    model = TemplateCRF("lbfgs", epochs=1, seed=1, C=2.0, cutoff=1)
    model.estimate(TEXTS, LABELS)

    def loss(flat):
        mean = slow_loss(flat.reshape(model.theta.shape), model, TEXTS, LABELS) / len(TEXTS)
        return mean + flat @ flat / (2 * 2.0 * len(TEXTS))

    assert np.abs(approx_fprime(model.theta.ravel(), loss, 1e-6)).max() < 1e-3
    assert np.abs(approx_fprime(np.zeros(model.theta.size), loss, 1e-6)).max() > 0.1


def test_the_first_rate_is_half_of_the_best_of_a_sample():
    """The rates 0.1, 0.2, … are tried, each for one pass over the sample, until the loss is not below the initial
    loss; then 0.05, 0.025, …
    """
    model = TemplateCRF("sgd", epochs=1, seed=1, cutoff=1)
    model.estimate(TEXTS, LABELS)
    start, losses = slow_loss(np.zeros(model.theta.shape), model, TEXTS, LABELS) / len(TEXTS), {}
    for rate in [0.1 * 2.0**i for i in range(-8, 7)]:
        steps = slow_descent(model, rate, [range(len(TEXTS))], 0.0)
        losses[rate] = slow_loss(steps[-1], model, TEXTS, LABELS) / len(TEXTS) + (steps[-1] ** 2).sum() / 2 / len(TEXTS)
    assert max(losses.values()) > start  # some tried rates are too high
    ids = np.array([[model.places[name] for name in row] for words in TEXTS for row in features(words)])
    chains = model._chains(TEXTS, LABELS, ids)
    found = template_crf._calibrated(chains, 1 / len(TEXTS), model.theta.shape, np.arange(len(TEXTS)))
    assert found == pytest.approx(min(losses, key=losses.get) / 2)


def test_features_are_those_of_the_template():
    """Two words share a feature exactly if a line of CRF++'s template expands to the same text for both."""
    words = [["a/X", "a/Y", "b/X"], ["a/X"], ["b/X", "a/X", "a/Y", "b/X", "a/X"], ["1/2/X", "a/Y"]]
    expanded, ours = [], []
    for row in words:
        split = [word.rpartition("/")[::2] for word in row]
        for i, found in enumerate(features(row)):

            def value(match, i=i, split=split):
                place, column = i + int(match[1]), int(match[2])
                edge = f"_B{place}" if place < 0 else f"_B+{place - len(split) + 1}"
                return split[place][column] if 0 <= place < len(split) else edge

            ours += found
            expanded += [f"{n}:" + re.sub(r"%x\[(-?\d),(\d)\]", value, line) for n, line in enumerate(TEMPLATE)]
    assert len({*zip(ours, expanded, strict=True)}) == len({*ours}) == len({*expanded})


@pytest.mark.real
@pytest.mark.long
def test_features_and_norm_are_those_of_crfsgd():
    """Its README has 76,328 features and the pair of tags, 1,679,700 parameters, and ‖θ‖² = 3428.22 after one epoch."""
    rows = read_tagged(Path(os.environ["RETABLE_DATA"]) / "conll2000/train.txt", pos=1)
    model = TemplateCRF("sgd", epochs=1, seed=101)
    model.estimate([row.words for row in rows], [row.tags for row in rows])
    assert (len(model.places), model.theta.size) == (76_328, 1_679_700)
    assert (model.theta**2).sum() == pytest.approx(3428.22, rel=0.01)
