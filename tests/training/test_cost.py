from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from retable.models.recurrent import LSTM
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.base import CountsWords
from retable.objectives.hierarchical_lm import HierarchicalLM
from retable.objectives.sampled_softmax import SampledSoftmax
from retable.training import cost
from retable.training.cost import flops_utilisation, product_rate, training_cost

V = 50


def test_a_step_costs_six_operations_a_weight_and_token():
    objective = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 3))
    assert training_cost(objective, SimpleNamespace(tokens_per_step=20)) == {"tokens": 20, "flops": 6 * 8 * 3 * 20}
    assert training_cost(objective, SimpleNamespace()) == {}


@pytest.mark.parametrize("build", [partial(SampledSoftmax, samples=9, power=0.5), HierarchicalLM,
                                   partial(AdaptiveSoftmax, cutoffs=[8, 30], division=2)])  # fmt: skip
def test_of_a_softmax_that_is_read_in_part_only_that_counts(build):
    """The cost of a step is the number of multiplications, on average over words with the counted frequencies."""
    objective = build(LSTM(V, 16, 1, 0.0, 0.1), vocab_size=V, tie=False, bias=False, reduction="mean")
    frequencies = 1 / np.arange(1, V + 1)
    if isinstance(objective, CountsWords):
        objective.count(frequencies)
    cost = training_cost(objective, SimpleNamespace(tokens_per_step=1))["flops"]
    recurrent = 2 * 4 * 16 * 16
    if isinstance(objective, HierarchicalLM):
        multiplied = [16 * (objective._signs[word] != 0).sum() for word in range(V)]
    elif isinstance(objective, AdaptiveSoftmax):
        tails = [0, 16 * 8 + 8 * 22, 16 * 4 + 4 * 20]
        multiplied = [16 * (8 + 2) + tails[(word >= 8) + (word >= 30)] for word in range(V)]
    else:
        torch.manual_seed(0)
        drawn = [len(objective.scores(torch.ones(1, 16), torch.tensor([3]))[2]) for _ in range(2000)]
        multiplied = [16 * (1 + np.mean(drawn))] * V
    assert cost / 6 - recurrent == pytest.approx(np.average(multiplied, weights=frequencies), rel=0.01)


@pytest.mark.parametrize(("chip", "n_chips", "share"), [
    ("NVIDIA H100 80GB HBM3", 1, 0.4),
    ("NVIDIA H100 80GB HBM3", 8, 0.05),  # eight chips have eight times the peak
    ("NVIDIA A100-SXM4-80GB", 2, 0.4 * 989 / 312 / 2),
    ("NVIDIA L40S", 1, 0.4 * 989 / 362),
    ("NVIDIA L4", 1, 0.4 * 989 / 121),
    ("NVIDIA H100 PCIe", 1, 0.4 * 989 / 756),
    ("NVIDIA H100 NVL", 1, 0.4 * 989 / 835),
    ("NVIDIA H200", 1, 0.4),
    ("NVIDIA H200 NVL", 1, 0.4 * 989 / 835),
    ("NVIDIA GeForce RTX 4090", 1, None),
])  # fmt: skip
def test_utilisation_is_of_the_peak_of_all_chips(chip, n_chips, share):
    found = flops_utilisation(0.4 * 989e12, chip, n_chips)
    assert found is None if share is None else found == pytest.approx(share)


def test_the_rate_of_products_is_that_of_the_fastest(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 24.0, 30.0, 39.0])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(clock))
    assert product_rate(torch.float32) == 2 * 1024**3 / 2.0
