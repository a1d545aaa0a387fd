import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.recurrent import LSTM
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from tests.nn.by_hand import arrays, softmax

V, D = 20, 16


def make(**changed) -> AdaptiveSoftmax:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.5)
    settings = {"tie": False, "bias": True, "reduction": "mean", "cutoffs": [5, 12], "division": 4.0} | changed
    return AdaptiveSoftmax(model, V, **settings)


def by_levels(weights: dict[str, np.ndarray], hidden: np.ndarray) -> np.ndarray:
    """(V,): the short list's own probabilities, then each cluster's times those of its words."""
    top = softmax(weights["head.weight"] @ hidden + weights.get("head.bias", 0))
    parts = [top[:5]]
    for i in (0, 1):
        inside = softmax(weights[f"tail.{i}.1.weight"] @ (weights[f"tail.{i}.0.weight"] @ hidden))
        parts.append(top[5 + i] * inside)
    return np.concatenate(parts)


@pytest.mark.parametrize("bias", [False, True])
def test_probabilities_are_the_products_of_the_levels(bias):
    objective = make(bias=bias)
    weights = arrays(objective.head)
    assert weights["tail.0.0.weight"].shape == (D // 4, D) and weights["tail.1.0.weight"].shape == (D // 16, D)
    assert ("head.bias" in weights) == bias
    hidden = torch.randn(4, D)
    expected = np.stack([by_levels(weights, row) for row in hidden.double().numpy()])
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    np.testing.assert_allclose(objective.log_softmax(hidden).exp().detach(), expected, rtol=1e-4, atol=1e-7)
    labels = torch.tensor([3, 5, 11, 19])
    log_probs = objective.log_prob_of(hidden, labels)
    np.testing.assert_allclose(log_probs.detach(), np.log(expected[np.arange(4), labels]), rtol=1e-4)
    assert objective.nats(hidden, labels).item() == pytest.approx(-log_probs.mean().item())


def test_ids_that_do_not_fall_in_frequency_are_refused():
    objective = make()
    objective.count(np.array([0, 90, *range(38, 20, -1)]))  # <unk> may be rare
    with pytest.raises(UsageError, match="tokenizer=word"):
        objective.count(np.arange(20))
