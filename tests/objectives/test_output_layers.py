"""Test output layers whose probabilities are products, against walks through clusters and trees."""

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.recurrent import LSTM
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.causal_lm import CausalLM
from retable.objectives.hierarchical_lm import HierarchicalLM
from tests.nn.by_hand import arrays, sigmoid, softmax

V, D = 20, 16


def by_levels(weights: dict[str, np.ndarray], hidden: np.ndarray) -> np.ndarray:
    """Return probabilities (V,): those of the short list, then for each cluster its probability times those of its
    words.
    """
    top = softmax(weights["head.weight"] @ hidden + weights.get("head.bias", 0))
    parts = [top[:5]]
    for i in (0, 1):
        inside = softmax(weights[f"tail.{i}.1.weight"] @ (weights[f"tail.{i}.0.weight"] @ hidden))
        parts.append(top[5 + i] * inside)
    return np.concatenate(parts)


def zipf_tree():
    """Return the root of a Huffman tree of pairs and ids: the two rarest nodes are joined repeatedly.

    Inner nodes are numbered in the order in which they are made. No two weights are equal here.
    """
    left = [(1 / (i + 1), i) for i in range(V)]
    number = {}
    while len(left) > 1:
        left.sort(key=lambda each: each[0])
        (first, a), (second, b), *left = left
        number[a, b] = len(number)
        left.append((first + second, (a, b)))
    return left[0][1], number


def by_walks(weights: dict[str, np.ndarray], hidden: np.ndarray) -> np.ndarray:
    """Return probabilities (V,), by walks from the root of the tree to each word."""
    logits = weights["weight"] @ hidden + weights.get("bias", 0)
    root, number = zipf_tree()
    probabilities = np.zeros(V)

    def walk(node, probability):
        if isinstance(node, int):
            probabilities[node] = probability
            return
        first = sigmoid(logits[number[node]])  # probability of the rarer child, branch 0
        walk(node[0], probability * first)
        walk(node[1], probability * (1 - first))

    walk(root, 1.0)
    return probabilities


LAYERS = {"adaptive": (AdaptiveSoftmax, by_levels), "hierarchical": (HierarchicalLM, by_walks)}
SHAPES = {"adaptive": {"tail.0.0.weight": (D // 4, D), "tail.1.0.weight": (D // 16, D)},
          "hierarchical": {"weight": (V - 1, D)}}  # fmt: skip


def make(name: str, bias: bool = True) -> CausalLM:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.5)
    more = {"cutoffs": [5, 12], "division": 4.0} if name == "adaptive" else {}
    return LAYERS[name][0](model, V, tie=False, bias=bias, reduction="mean", **more)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_probabilities_are_the_products_of_the_levels(name, bias):
    objective = make(name, bias)
    weights, hidden, labels = arrays(objective.head), torch.randn(V, D), torch.arange(V)
    assert {each: weights[each].shape for each in SHAPES[name]} == SHAPES[name]
    assert any(each.endswith("bias") for each in weights) == bias
    expected = np.stack([LAYERS[name][1](weights, row) for row in hidden.double().numpy()])
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    np.testing.assert_allclose(objective.log_softmax(hidden).exp().detach(), expected, rtol=1e-4, atol=1e-8)
    log_probs = objective.log_prob_of(hidden, labels)
    np.testing.assert_allclose(log_probs.detach(), np.log(expected.diagonal()), rtol=1e-4)
    assert objective.nats(hidden, labels).item() == pytest.approx(-log_probs.mean().item())


def test_the_weights_of_a_cluster_are_read_as_often_as_its_words_occur():
    """Cluster 1 has 16·4 + 4·7 weights and 42 of 100 words; cluster 2 has 16·1 + 1·8 weights and 8 of 100 words."""
    objective = make("adaptive")
    objective.count(np.repeat([10, 6, 1], [5, 7, 8]))
    assert objective.unread_weights() == pytest.approx(0.58 * 92 + 0.92 * 24)


def test_ids_that_do_not_fall_in_frequency_are_refused():
    objective = make("adaptive")
    objective.count(np.array([0, 90, *range(38, 20, -1)]))  # <unk> may be rare
    with pytest.raises(UsageError, match="tokenizer=word"):
        objective.count(np.arange(20))
