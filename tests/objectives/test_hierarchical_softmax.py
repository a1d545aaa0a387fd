import heapq
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retable.data.windows import WindowSlice
from retable.models.cbow import CBOW
from retable.models.skipgram import SkipGram
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax, huffman

COUNTS = [0, 50, 20, 20, 7, 0, 3, 1]


def objective(model=SkipGram, counts=COUNTS):
    torch.manual_seed(0)
    made = HierarchicalSoftmax(model([str(i) for i in range(len(counts))], 4), counts)
    torch.nn.init.normal_(made.output.weight)
    return made


def log_probability(u, path, v):
    """The logarithm of the product of a path's probabilities, a node at a time."""
    nodes, codes = path
    return sum(
        torch.log(torch.sigmoid((1 - 2 * int(code)) * u[node] @ v)) for node, code in zip(nodes, codes, strict=True)
    )


def path(made, word):
    length = made.lengths[word]
    assert (made.nodes[word, length:] == -1).all()
    return made.nodes[word, :length], made.codes[word, :length]


def codes(counts):
    _, codes, lengths = huffman(np.array(counts))
    return {w: "".join(map(str, codes[w, : lengths[w]])) for w in np.flatnonzero(counts)}


def optimal_cost(counts):
    """Σ count · length of an optimal code: the sum of all the weights that the merges make, by a heap."""
    heap = [count for count in counts if count]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, merged)
        cost += merged
    return cost


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any))
def test_the_code_is_an_optimal_prefix_code(counts):
    code = codes(counts)
    lengths = {word: len(bits) for word, bits in code.items()}
    assert sum(counts[word] * length for word, length in lengths.items()) == optimal_cost(counts)
    # The tree is full, and none stands above another: Kraft's sum is 1 and prefixes differ.
    assert sum(Fraction(1, 2**length) for length in lengths.values()) == 1
    ordered = sorted(code.values())
    assert not any(b.startswith(a) for a, b in pairwise(ordered))
    # The mean length is within one bit of the entropy.
    p = np.array([counts[word] for word in code]) / sum(counts)
    entropy = -(p * np.log2(p)).sum()
    assert entropy - 1e-9 <= optimal_cost(counts) / sum(counts) < entropy + 1
    for a in lengths:
        for b in lengths:
            assert counts[a] <= counts[b] or lengths[a] <= lengths[b]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30).filter(lambda counts: sum(map(bool, counts)) > 1))
def test_codes_and_nodes_tell_of_one_tree(counts):
    nodes, codes, lengths = huffman(np.array(counts))
    below = {}
    for word in np.flatnonzero(counts):
        steps = list(zip(nodes[word, : lengths[word]].tolist(), codes[word, : lengths[word]].tolist(), strict=True))
        assert steps[0][0] == np.count_nonzero(counts) - 2  # the root, made last
        for (node, bit), after in zip(steps, [*steps[1:], (f"word {word}", None)], strict=True):
            assert below.setdefault((node, bit), after[0]) == after[0]
    assert {node for node, _ in below} == set(range(np.count_nonzero(counts) - 1))
    assert len(below) == 2 * (np.count_nonzero(counts) - 1)


def test_ties_are_always_settled_alike():
    assert codes([5, 5, 5, 5]) == codes([5, 5, 5, 5]) == {0: "11", 1: "10", 2: "01", 3: "00"}
    assert codes([1, 1, 2]) == {2: "0", 0: "11", 1: "10"}  # a word before the inner node of its weight


@pytest.mark.parametrize("counts", [COUNTS, [1, 1], [0, 9], list(range(60))])
def test_probabilities_of_all_words_sum_to_one(counts):
    made, v = objective(counts=counts), 2 * torch.randn(4)
    words = np.flatnonzero(counts)
    logs = [
        -made.nats(v[None, None], torch.tensor([[word]]), torch.ones(1, 1, 1, dtype=torch.bool), step=0)
        for word in words
    ]
    torch.testing.assert_close(torch.stack(logs).exp().sum(), torch.tensor(1.0))
    u = made.output.weight
    torch.testing.assert_close(
        torch.stack(logs), torch.stack([torch.as_tensor(log_probability(u, path(made, word), v)) for word in words]),
        check_dtype=False,
    )  # fmt: skip


@pytest.mark.parametrize("model", [SkipGram, CBOW])
def test_loss_and_gradients_are_those_written_out(model):
    made = objective(model)
    table = next(made.model.parameters())
    torch.nn.init.normal_(table)
    text = [1, 2, 6, 4, 7]
    line = WindowSlice(torch.tensor(text), torch.zeros(5).long(), torch.full((5,), 2), window=2)
    loss, metrics, state = made.loss(line, None, step=0)
    expected, pairs = 0, 0
    for i, centre in enumerate(text):
        window = text[max(i - 2, 0) : i] + text[i + 1 : i + 3]
        if model is CBOW:
            expected -= log_probability(made.output.weight, path(made, centre), table[window].mean(0))
            pairs += 1
        else:
            expected -= sum(log_probability(made.output.weight, path(made, o), table[centre]) for o in window)
            pairs += len(window)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], loss.detach() / pairs)
    assert state is None
    of = [table, made.output.weight]
    torch.testing.assert_close(torch.autograd.grad(loss, of), torch.autograd.grad(expected, of))
