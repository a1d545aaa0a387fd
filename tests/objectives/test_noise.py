"""What the output layers that are trained against noise have in common, and the noise itself."""

import numpy as np
import pytest
import torch

from retable.models.recurrent import LSTM
from retable.objectives.noise import chances
from retable.objectives.sampled_softmax import SampledSoftmax

V, D = 12, 8
COUNTS = np.array([60, 30, 20, 15, 12, 10, 8, 6, 5, 4, 1, 0])


def make() -> SampledSoftmax:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.5)
    objective = SampledSoftmax(model, V, tie=False, bias=True, reduction="mean", samples=4, power=1.0)
    objective.count(COUNTS)
    return objective


@pytest.mark.parametrize("samples", [1, 3, 7, 11])
@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
def test_chances_are_in_proportion_but_for_those_that_would_exceed_one(samples, power):
    weights = np.maximum(COUNTS, 1.0) ** power
    found = chances(weights, samples)
    low, high = 0.0, 1e6  # bisection for the constant
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * weights, 1).sum() < samples else (low, middle)
    np.testing.assert_allclose(found, np.minimum(low * weights, 1), rtol=1e-9)
    assert found.sum() == pytest.approx(samples) and found.max() <= 1


def test_as_many_samples_as_words_are_all_of_them():
    assert (chances(COUNTS + 1.0, V) == 1).all() and (chances(COUNTS + 1.0, V + 5) == 1).all()


def test_chances_do_not_depend_on_the_order_of_the_words():
    shuffled = np.random.default_rng(0).permutation(V)
    np.testing.assert_array_equal(chances(COUNTS[shuffled] + 1.0, 5), chances(COUNTS + 1.0, 5)[shuffled])


def test_a_word_is_noise_as_often_as_its_chance_says():
    objective = make()
    hidden, labels = torch.zeros(1, D), torch.zeros(1, dtype=torch.long)
    draws, seen, sizes = 4000, np.zeros(V), []
    for _ in range(draws):
        noise = objective.scores(hidden, labels)[2]
        assert len(noise.unique()) == len(noise)
        seen[noise] += 1
        sizes.append(len(noise))
    expected = chances(np.maximum(COUNTS, 1), 4)
    spread = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(seen / draws - expected) <= 4.5 * spread).all()
    assert np.mean(sizes) == pytest.approx(4, abs=0.1)


def test_scores_are_logits_less_the_logarithm_of_the_chance():
    objective = make()
    hidden, labels = torch.randn(5, D), torch.tensor([0, 3, 11, 3, 10])
    of_labels, of_noise, noise = objective.scores(hidden, labels)
    corrected = objective.head(hidden).detach().numpy() - np.log(chances(np.maximum(COUNTS, 1), 4))
    np.testing.assert_allclose(of_labels.detach(), corrected[np.arange(5), labels], rtol=1e-5)
    np.testing.assert_allclose(of_noise.detach(), corrected[:, noise], rtol=1e-5)
