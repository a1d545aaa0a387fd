import numpy as np
import pytest
import torch

from retable.objectives.causal_lm import CausalLM
from retable.objectives.sampled_softmax import SampledSoftmax
from tests.objectives.noise_cases import Contexts, D, choose, expected_gradient, make

DATA = np.array([0.05, 0.4, 0.25, 0.1, 0.2])
COUNTS = np.array([8, 4, 4, 1, 3])
LOGITS = np.array([0.3, -0.5, 1.0, 0.2, -1.2])


def test_equals_a_loop_over_the_set_of_label_and_noise(monkeypatch):
    counts = np.array([9, 5, 4, 3, 2, 1])
    objective = make(SampledSoftmax, 6, counts, samples=3)
    chance = objective._chance.numpy()
    choose(monkeypatch, [0, 2, 5], 6)
    hidden, labels = torch.randn(4, D), torch.tensor([2, 1, 5, 0])  # three accidental hits
    logits = objective.head(hidden).detach().double().numpy()
    losses = []
    for row, label in zip(logits, labels.tolist(), strict=True):
        candidates = {label} | {0, 2, 5}
        weights = {word: np.exp(row[word]) / chance[word] for word in candidates}
        losses.append(-np.log(weights[label] / sum(weights.values())))
    assert objective.nats(hidden, labels).item() == pytest.approx(np.mean(losses), rel=1e-5)


def test_with_all_words_for_noise_it_is_the_full_softmax():
    sampled = make(SampledSoftmax, 5, COUNTS, samples=5)
    full = CausalLM(Contexts(4), 5, tie=False, bias=True, reduction="mean")
    full.head.load_state_dict(sampled.head.state_dict())
    hidden, labels = torch.randn(7, D), torch.randint(5, (7,))
    losses = [objective.nats(hidden, labels) for objective in (sampled, full)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses)
    for mine, exact in zip(sampled.head.parameters(), full.head.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, exact.grad)


@pytest.mark.parametrize("samples", [1, 2, 4])
def test_the_expected_gradient_is_zero_at_the_data_distribution(samples, monkeypatch):
    objective = make(SampledSoftmax, 5, COUNTS, samples)
    gradient = expected_gradient(objective, DATA, np.log(DATA) + 0.7, monkeypatch)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    elsewhere = expected_gradient(objective, DATA, LOGITS, monkeypatch)
    assert np.abs(elsewhere).max() > 0.02


def test_the_expected_gradient_approaches_the_full_softmaxs_as_samples_grow(monkeypatch):
    full = np.exp(LOGITS) / np.exp(LOGITS).sum() - DATA
    distances = [
        np.linalg.norm(expected_gradient(make(SampledSoftmax, 5, COUNTS, samples), DATA, LOGITS, monkeypatch) - full)
        for samples in range(1, 6)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.1 and distances[-1] < 1e-6
