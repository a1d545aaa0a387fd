import numpy as np
import pytest
import torch

from retable.models.recurrent import LSTM
from retable.objectives.hierarchical_lm import HierarchicalLM
from tests.nn.by_hand import arrays

V, D = 20, 16


def make(**changed) -> HierarchicalLM:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.5)
    return HierarchicalLM(model, V, **({"tie": False, "bias": True, "reduction": "mean"} | changed))


def zipf_tree():
    """The root of a Huffman tree of pairs and ids: of those that are left, the two rarest are joined, again and again;
    inner nodes are numbered as they are made. No two weights are equal here."""
    left = [(1 / (i + 1), i) for i in range(V)]
    number = {}
    while len(left) > 1:
        left.sort(key=lambda each: each[0])
        (first, a), (second, b), *left = left
        number[a, b] = len(number)
        left.append((first + second, (a, b)))
    return left[0][1], number


def walked(logits: np.ndarray) -> np.ndarray:
    """(V − 1,) logits of the inner nodes to the words' probabilities (V,), by a walk from the root down."""
    root, number = zipf_tree()
    found = np.zeros(V)

    def walk(node, probability):
        if isinstance(node, int):
            found[node] = probability
            return
        first = 1 / (1 + np.exp(-logits[number[node]]))  # of the rarer one, branch 0
        walk(node[0], probability * first)
        walk(node[1], probability * (1 - first))

    walk(root, 1.0)
    return found


@pytest.mark.parametrize("bias", [False, True])
def test_probabilities_are_those_of_a_walk_down_the_tree(bias):
    objective = make(bias=bias)
    weights = arrays(objective.head)
    assert weights["weight"].shape == (V - 1, D) and ("bias" in weights) == bias
    hidden = torch.randn(V, D)
    expected = np.stack([walked(weights["weight"] @ row + weights.get("bias", 0)) for row in hidden.double().numpy()])
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    np.testing.assert_allclose(objective.log_softmax(hidden).exp().detach(), expected, rtol=1e-4, atol=1e-8)
    labels = torch.arange(V)
    log_probs = objective.log_prob_of(hidden, labels)
    np.testing.assert_allclose(log_probs.detach(), np.log(expected[np.arange(V), labels]), rtol=1e-4)
    assert objective.nats(hidden, labels).item() == pytest.approx(-log_probs.mean().item())


def test_gradients_are_those_of_the_walk():
    objective = make()
    hidden, labels = torch.randn(4, D, requires_grad=True), torch.tensor([0, 3, 17, 3])
    objective.nats(hidden, labels).backward()
    weight, bias = (p.detach().double().numpy() for p in objective.head.parameters())
    step = 1e-6
    for row, label in enumerate(labels):
        state = hidden[row].detach().double().numpy()
        up, down = (
            np.array([np.log(walked(weight @ (state + way * step * unit) + bias)[label]) for unit in np.eye(D)])
            for way in (1, -1)
        )
        np.testing.assert_allclose(hidden.grad[row], -(up - down) / (2 * step) / len(labels), rtol=1e-3, atol=1e-5)
