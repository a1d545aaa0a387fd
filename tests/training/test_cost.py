from types import SimpleNamespace

import pytest
import torch
from torch import nn

from retable.training import cost
from retable.training.cost import flops_utilisation, product_rate, training_cost


def test_a_step_costs_six_operations_a_weight_and_token():
    objective = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 3))
    assert training_cost(objective, SimpleNamespace(tokens_per_step=20)) == {"tokens": 20, "flops": 6 * 8 * 3 * 20}
    assert training_cost(objective, SimpleNamespace()) == {}


@pytest.mark.parametrize(
    ("chip", "n_chips", "share"),
    [
        ("NVIDIA H100 80GB HBM3", 1, 0.4),
        ("NVIDIA H100 80GB HBM3", 8, 0.05),  # eight chips could do eight times as much
        ("NVIDIA A100-SXM4-80GB", 2, 0.4 * 989 / 312 / 2),
        ("NVIDIA GeForce RTX 4090", 1, None),
    ],
)
def test_utilisation_is_of_the_peak_of_all_chips(chip, n_chips, share):
    found = flops_utilisation(0.4 * 989e12, chip, n_chips)
    assert found is None if share is None else found == pytest.approx(share)


def test_the_rate_of_products_is_that_of_the_fastest(monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 24.0, 30.0, 39.0])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(clock))
    assert product_rate(torch.float32) == 2 * 1024**3 / 2.0
