"""Test output layers that are trained against noise word by word against their definitions, and test the noise
itself.
"""

import copy
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from retable.models.base import LeftToRight
from retable.objectives.blackout import BlackOut
from retable.objectives.noise import NoiseLM, chances
from retable.objectives.noise_contrastive import NoiseContrastive
from retable.objectives.sampled_softmax import SampledSoftmax

D, COUNTS = 3, np.array([9, 5, 4, 3, 2, 0])
LAYERS = {
    "blackout": partial(BlackOut, power=0.4),
    "blackout, uniform": partial(BlackOut, power=0.0),
    "sampled softmax": partial(SampledSoftmax, power=1.0),
    "noise-contrastive": partial(NoiseContrastive, power=1.0, learn_normaliser=False),
    "noise-contrastive, learnt": partial(NoiseContrastive, power=1.0, learn_normaliser=True),
}
DATA = np.array([0.05, 0.4, 0.25, 0.1, 0.2])
LOGITS = np.array([0.3, -0.5, 1.0, 0.2, -1.2])


class Contexts(LeftToRight):
    """A model whose hidden state of context i is row i of a table."""

    start = None
    d_model = D

    def __init__(self, n: int):
        super().__init__()
        self.embedding = nn.Embedding(n, D)

    def initialise(self, module):
        pass

    def forward(self, input_ids, state=None):
        return self.embedding(input_ids), None


def make(name: str, counts: np.ndarray, samples: int) -> NoiseLM:
    torch.manual_seed(0)
    objective = LAYERS[name](Contexts(4), len(counts), samples=samples, tie=False, bias=True, reduction="mean")
    objective.count(counts)
    return objective


def choose(monkeypatch, words, vocab_size: int) -> None:
    """Replace the random noise by these words."""
    mask = torch.zeros(vocab_size, dtype=torch.float64)
    mask[list(words)] = 1
    monkeypatch.setattr(torch, "bernoulli", lambda chance: mask)


def by_the_book(objective: NoiseLM, hidden: Tensor, labels: Tensor, noise: set[int], chance: np.ndarray) -> Tensor:
    """Return the mean loss, computed with Python's sets in float64; it is differentiable."""
    losses = []
    for row, label in zip(objective.head(hidden), labels.tolist(), strict=True):
        others = noise - {label}
        weight = {k: row[k].exp() / chance[k] for k in others | {label}}
        p = {k: w / sum(weight.values()) for k, w in weight.items()}
        if isinstance(objective, SampledSoftmax):  # over the set of the label and the noise
            loss = -p[label].log()
        elif isinstance(objective, BlackOut):
            loss = -p[label].log() - sum((1 - p[k]).log() for k in others)
        else:  # noise that equals the label counts too
            p = row.exp() / objective.log_normaliser.exp()
            loss = -(p[label] / (p[label] + chance[label])).log()
            loss = loss - sum((chance[k] / (p[k] + chance[k])).log() for k in noise)
        losses.append(loss)
    return torch.stack(losses).mean()


@pytest.mark.parametrize("noise", [{0, 2, 5}, {1}, {4}, {0, 1, 2, 3, 4, 5}, set()], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_loss_and_gradients_equal_a_loop_from_the_definition(name, noise, monkeypatch):
    objective = make(name, COUNTS, samples=3)
    if isinstance(objective, NoiseContrastive):
        assert objective.log_normaliser.requires_grad == ("learnt" in name)
        assert objective.log_normaliser.item() == pytest.approx(np.log(6))
    choose(monkeypatch, noise, 6)
    hidden, labels = torch.randn(5, D, requires_grad=True), torch.tensor([2, 1, 5, 0, 1])
    exact, twin = hidden.detach().double().requires_grad_(), copy.deepcopy(objective).double()
    chance = chances(np.maximum(COUNTS, 1) ** LAYERS[name].keywords["power"], 3)
    expected = by_the_book(twin, exact, labels, noise, chance)
    expected.backward()
    loss = objective.nats(hidden, labels)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    for ours, theirs in zip((hidden, *objective.parameters()), (exact, *twin.parameters()), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)


def test_a_word_of_noise_that_has_all_the_probability_is_still_turned_away(monkeypatch):
    objective = make("blackout", COUNTS, samples=3)
    choose(monkeypatch, [0, 3], 6)
    objective.head.bias.data = torch.tensor([80.0, 0.0, 0.0, 40.0, 0.0, 0.0])
    objective.head.weight.data.zero_()
    loss = objective.nats(torch.zeros(1, D), torch.tensor([1]))
    loss.backward()
    scores = objective.head.bias.detach().double() - objective._chance.log()
    expected = (scores[0] - scores[1]) + (scores[0] - scores[3])  # −log p̃(1) − log(1 − p̃(0)); p̃(3) is about 0
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert objective.head.bias.grad[0].item() == pytest.approx(2.0)


def expected_gradient(objective: NoiseLM, logits: np.ndarray, monkeypatch) -> np.ndarray:
    """Return the exact expected gradient of the loss by the logits of one context, over the labels of DATA and all
    noise.
    """
    hidden, chance, total = torch.zeros(1, D), objective._chance.numpy(), np.zeros(5)
    objective.head.bias.data = torch.tensor(logits, dtype=torch.float32)
    for flags in product([0, 1], repeat=5):
        probability = float(np.prod(np.where(flags, chance, 1 - chance)))
        if probability:
            choose(monkeypatch, np.flatnonzero(flags), 5)
            for label, share in enumerate(DATA):
                objective.zero_grad()
                objective.nats(hidden, torch.tensor([label])).backward()
                total += probability * share * objective.head.bias.grad.numpy()
    return total


@pytest.mark.parametrize("samples", [1, 2, 4, 5])
@pytest.mark.parametrize("name", ["sampled softmax", "noise-contrastive"])
def test_the_expected_gradient_is_zero_at_the_data_distribution(name, samples, monkeypatch):
    objective = make(name, np.array([8, 4, 4, 1, 3]), samples)
    contrastive = isinstance(objective, NoiseContrastive)
    at_data = np.log(DATA) + (objective.log_normaliser.item() if contrastive else 0.7)
    np.testing.assert_allclose(expected_gradient(objective, at_data, monkeypatch), 0, atol=1e-6)
    elsewhere = expected_gradient(objective, at_data + 0.5 if contrastive else LOGITS, monkeypatch)
    assert (elsewhere > 0.01).all() if contrastive else np.abs(elsewhere).max() > 0.02  # all gradients are positive


def test_the_expected_gradient_approaches_the_full_softmaxs_as_samples_grow(monkeypatch):
    full = np.exp(LOGITS) / np.exp(LOGITS).sum() - DATA
    objectives = [make("sampled softmax", np.array([8, 4, 4, 1, 3]), samples) for samples in range(1, 6)]
    distances = [np.linalg.norm(expected_gradient(each, LOGITS, monkeypatch) - full) for each in objectives]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.1 and distances[-1] < 1e-6


WORDS = np.array([60, 30, 20, 15, 12, 10, 8, 6, 5, 4, 1, 0])


@pytest.mark.parametrize("samples", [1, 3, 7, 11])
@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_chances_are_in_proportion_but_for_those_that_would_exceed_one(samples, power):
    weights = np.maximum(WORDS, 1.0) ** power
    probabilities = chances(weights, samples)
    low, high = 0.0, 1e6  # bisection for the constant
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * weights, 1).sum() < samples else (low, middle)
    np.testing.assert_allclose(probabilities, np.minimum(low * weights, 1), rtol=1e-9)
    assert probabilities.sum() == pytest.approx(samples) and probabilities.max() <= 1
    shuffled = np.random.default_rng(0).permutation(len(weights))
    np.testing.assert_array_equal(chances(weights[shuffled], samples), probabilities[shuffled])


def test_as_many_samples_as_words_are_all_of_them():
    assert (chances(WORDS + 1.0, 12) == 1).all() and (chances(WORDS + 1.0, 17) == 1).all()


@pytest.mark.parametrize("samples", [1, 3])
def test_the_weights_of_all_words_but_the_label_and_the_noise_are_unread(samples):
    assert make("blackout", COUNTS, samples).unread_weights() == (6 - 1 - samples) * D


def test_a_word_is_noise_as_often_as_its_chance_says():
    objective = make("sampled softmax", WORDS, samples=4)
    draws, seen, sizes = 4000, np.zeros(12), []
    for _ in range(draws):
        noise = objective.scores(torch.zeros(1, D), torch.tensor([0]))[2]
        assert len(noise.unique()) == len(noise)
        seen[noise] += 1
        sizes.append(len(noise))
    expected = chances(np.maximum(WORDS, 1), 4)
    spread = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(seen / draws - expected) <= 4.5 * spread).all()
    assert np.mean(sizes) == pytest.approx(4, abs=0.1)
