"""Test objectives of words and their windows: losses computed pair by pair, and the minimum of each loss."""

import heapq
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.data.windows import Windows, WindowSlice, keep_probabilities
from retable.models.cbow import CBOW
from retable.models.skipgram import SkipGram
from retable.objectives.full_softmax import FullSoftmax
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax, huffman
from retable.objectives.negative_sampling import NegativeSampling, negative_sampling

# Lines of two words (a, b): the pairs of a line are (a, b) and (b, a).
PAIRS = np.array([[0, 0, 0, 0, 0, 0], [0, 3, 8, 1, 0, 0], [0, 0, 2, 5, 1, 0], [0, 1, 0, 4, 6, 0], [0, 2, 0, 0, 3, 0]])
JOINT = PAIRS[1:5, 1:5] + PAIRS[1:5, 1:5].T
COUNTS = np.array([0, *JOINT.sum(1), 0])
VOCABULARY = [str(i) for i in range(6)]
KINDS = [FullSoftmax, HierarchicalSoftmax, NegativeSampling]


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def vocabulary(n):
    return [str(i) for i in range(n)]


def window_slice(ids, window=2):
    """Return one line of words with windows of full size."""
    n = len(ids)
    return WindowSlice(torch.tensor(ids), torch.zeros(n, dtype=torch.long), torch.full((n,), window), window)


def example(rows=3, centres=4, contexts=6, noise=5, d_model=3):
    torch.manual_seed(0)
    v, u = torch.randn(rows, centres, d_model).double(), torch.randn(rows, contexts, d_model).double()
    pairs = torch.rand(rows, centres, contexts) < 0.4
    pairs[0, 0] = False  # the first centre has no context
    n = torch.randn(noise, d_model).double()
    return [x.requires_grad_() for x in (v, u, n)], pairs


def written_out(v, u, noise, pairs, negatives):
    """Return equation 4, computed over pairs and noise words."""
    total = 0
    for r, i, j in pairs.nonzero().tolist():
        total = total - torch.log(torch.sigmoid(u[r, j] @ v[r, i]))
        for n in noise:
            total = total - negatives / len(noise) * torch.log(torch.sigmoid(-n @ v[r, i]))
    return total


def log_probability(u, path, v):
    """Return the log of the product of the probabilities along a path, node by node."""
    nodes, codes = path
    return sum(
        torch.log(torch.sigmoid((1 - 2 * int(code)) * u[node] @ v)) for node, code in zip(nodes, codes, strict=True)
    )


def path(made, word):
    length = made.lengths[word]
    assert (made.nodes[word, length:] == -1).all()
    return made.nodes[word, :length], made.codes[word, :length]


@pytest.mark.parametrize("model", [SkipGram, CBOW])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_written_out(kind, model):
    """In skip-gram, a word's vector predicts each word of its window; in CBOW, the mean of a window predicts its
    centre.
    """
    more = {"negatives": 2, "pool": 6} if kind is NegativeSampling else {}
    objective = kind(model(vocabulary(8), 4), counts=[0, 50, 20, 20, 7, 0, 3, 1], **more)
    torch.nn.init.normal_(objective.output.weight)
    table, u = next(objective.model.parameters()), objective.output.weight
    torch.nn.init.normal_(table)

    def nats(v, word):
        if kind is FullSoftmax:
            counted = [1, 2, 3, 4, 6, 7]
            return -torch.log_softmax(u[counted] @ v, dim=0)[counted.index(word)]
        if kind is HierarchicalSoftmax:
            return -log_probability(u, path(objective, word), v)
        noise = u[objective.draw(3)]
        return written_out(v[None, None], u[word][None, None], noise, torch.ones(1, 1, 1), 2)

    text, predicted = [1, 2, 6, 4, 7], []
    for i, centre in enumerate(text):
        window = text[max(i - 2, 0) : i] + text[i + 1 : i + 3]
        predicted += [(table[centre], o) for o in window] if model is SkipGram else [(table[window].mean(0), centre)]
    expected = sum(nats(v, word) for v, word in predicted)
    loss, metrics, state = objective.loss(window_slice(text), None, step=3)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], loss.detach() / len(predicted))
    assert state is None and objective.vectors().equal(table)
    learnt = [table, u]
    torch.testing.assert_close(torch.autograd.grad(loss, learnt), torch.autograd.grad(expected, learnt))


def minimum(objective):
    """Return the model after its objective's loss on the corpus is minimised."""
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter)
    optimizer = torch.optim.LBFGS(
        objective.parameters(), max_iter=3000, tolerance_grad=1e-7, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss, _, _ = objective.loss(corpus(), None, step=0)
        loss.backward()
        return loss

    optimizer.step(closure)
    return objective


def corpus():
    lines = [(a, b) for a in range(5) for b in range(6) for _ in range(PAIRS[a, b])]
    words = torch.tensor(lines).flatten()
    return WindowSlice(words, torch.arange(len(lines)).repeat_interleave(2), torch.ones_like(words), window=1)


@pytest.mark.parametrize("kind", [FullSoftmax, HierarchicalSoftmax])
def test_the_minimum_is_the_empirical_conditional(kind):
    """With as many dimensions as words, both softmaxes can represent any distribution.

    The cross-entropy is lowest at the distribution of the text, where the loss is the conditional entropy.
    """
    objective = minimum(kind(SkipGram(VOCABULARY, 6), COUNTS))
    conditional = JOINT / JOINT.sum(1, keepdims=True)
    some = JOINT > 0
    entropy = -(JOINT[some] * np.log(conditional[some])).sum()
    loss, _, _ = objective.loss(corpus(), None, step=0)
    assert loss.item() == pytest.approx(entropy, rel=1e-3)
    one = torch.ones(1, 1, 1, dtype=torch.bool)
    v = objective.model.vectors()
    said = [
        [np.exp(-objective.nats(v[c][None, None], torch.tensor([[o]]), one, 0).item()) for o in range(1, 5)]
        for c in range(1, 5)
    ]
    np.testing.assert_allclose(said, conditional, atol=5e-3)


def test_the_minimum_of_negative_sampling_is_shifted_pmi():
    """u_o·v_c = log p(c, o) / (p(c) p_noise(o)) − log k (Levy and Goldberg 2014, with noise ∝ count^1)."""
    negatives = 2
    objective = NegativeSampling(SkipGram(VOCABULARY, 6), COUNTS, negatives=negatives, power=1.0)
    # Each word occurs in the noise in proportion to its probability, so nothing is random.
    objective.pool = int(COUNTS.sum())
    objective.draw = lambda step: np.repeat(np.arange(6), COUNTS)
    minimum(objective)
    scores = (objective.model.vectors() @ objective.output.weight.detach().T).numpy()[1:5, 1:5]
    seen = JOINT > 0
    n = JOINT.sum()
    pmi = np.log(np.where(seen, JOINT, 1) * n / np.outer(JOINT.sum(1), JOINT.sum(1)))
    np.testing.assert_allclose(scores[seen], (pmi - np.log(negatives))[seen], atol=1e-3)
    assert (scores[~seen] < -5).all()  # the scores go to minus infinity


def codes(counts):
    _, codes, lengths = huffman(np.array(counts))
    return {w: "".join(map(str, codes[w, : lengths[w]])) for w in np.flatnonzero(counts)}


def optimal_cost(counts):
    """Return Σ count · length of an optimal code: the sum of all merged weights, computed with a heap."""
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
    # The tree is full, and no code is a prefix of another: Kraft's sum is 1.
    assert sum(Fraction(1, 2**length) for length in lengths.values()) == 1
    ordered = sorted(code.values())
    assert not any(b.startswith(a) for a, b in pairwise(ordered))
    # The mean length is at most one bit above the entropy.
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
        assert steps[0][0] == np.count_nonzero(counts) - 2  # the root is made last
        for (node, bit), after in zip(steps, [*steps[1:], (f"word {word}", None)], strict=True):
            assert below.setdefault((node, bit), after[0]) == after[0]
    assert {node for node, _ in below} == set(range(np.count_nonzero(counts) - 1))
    assert len(below) == 2 * (np.count_nonzero(counts) - 1)


def test_ties_are_always_settled_alike():
    assert codes([5, 5, 5, 5]) == codes([5, 5, 5, 5]) == {0: "11", 1: "10", 2: "01", 3: "00"}
    assert codes([1, 1, 2]) == {2: "0", 0: "11", 1: "10"}  # a word comes before an inner node of the same weight


@pytest.mark.parametrize("counts", [[0, 50, 20, 20, 7, 0, 3, 1], [1, 1], [0, 9], list(range(60))])
def test_probabilities_of_all_words_sum_to_one(counts):
    made, v = HierarchicalSoftmax(SkipGram(vocabulary(len(counts)), 4), counts), 2 * torch.randn(4)
    torch.nn.init.normal_(made.output.weight)
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


def test_loss_and_gradients_are_those_of_equation_4():
    tables, pairs = example()
    loss, expected = negative_sampling(*tables, pairs, 5), written_out(*tables, pairs, 5)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(3 * loss, tables)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, tables))
    assert torch.autograd.gradcheck(lambda *x: negative_sampling(*x, pairs, 2), tables)


def test_large_scores_stay_finite():
    v = torch.tensor([[[300.0]]], requires_grad=True)
    loss = negative_sampling(v, -v.detach(), v.detach()[0], torch.tensor([[[True]]]), 1)
    assert loss.item() == 2 * 300.0**2
    assert torch.autograd.grad(loss, v)[0].item() == 2 * 300.0


def test_noise_is_drawn_by_counts_to_the_power():
    counts = np.array([0, 1000, 300, 100, 30, 10, 0])
    objective = NegativeSampling(SkipGram(vocabulary(7), 2), counts, power=0.75, pool=1000)
    drawn = np.bincount(np.concatenate([objective.draw(step) for step in range(100)]), minlength=7)
    assert drawn[[0, 6]].tolist() == [0, 0]
    expected = counts[1:6] ** 0.75
    assert chisquare(drawn[1:6], 100_000 * expected / expected.sum()).pvalue > 0.01
    # The same draws are not a sample of the counts themselves, nor of the uniform distribution.
    assert chisquare(drawn[1:6], 100_000 * counts[1:6] / counts.sum()).pvalue < 1e-9
    assert chisquare(drawn[1:6]).pvalue < 1e-9


def test_noise_is_not_what_decided_which_words_to_keep():
    stream = np.ones(200, dtype=np.uint16)
    counts = np.array([0, 200])
    kept = len(Windows(stream, counts, 0, subsample=0.16, batch_tokens=200, seed=1).batch(0).words)  # half of the words
    assert 60 < kept < 150
    # Ids divided by 1000 are the uniform numbers from which words are drawn.
    uniform = NegativeSampling(SkipGram(vocabulary(1000), 2), np.ones(1000), seed=1, pool=200).draw(0) / 1000
    assert (uniform < keep_probabilities(counts, 0.16)[1]).sum() != kept


def test_an_empty_batch_has_loss_0():
    objective = NegativeSampling(SkipGram(vocabulary(5), 4), counts=[0, 3, 2, 1, 1])
    empty = Windows(np.zeros(3, dtype=np.uint16), counts=[3], boundary=0).batch(0)
    loss, metrics, _ = objective.loss(empty, None, step=0)
    loss.backward()
    assert loss == metrics["loss"] == 0
    assert not objective.model.centre.weight.grad.any()


def test_says_when_training_has_diverged():
    model = SkipGram(vocabulary(3), 2)
    torch.nn.init.constant_(model.centre.weight, torch.nan)
    with pytest.raises(UsageError, match=r"diverged at step 7.*batch_tokens"):
        NegativeSampling(model, counts=[0, 1, 1]).loss(window_slice([1, 2]), None, step=7)
