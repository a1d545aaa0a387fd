import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.hierarchical_lm import HierarchicalLM
from retable.training.weights import load_weights, save_weights

V, D, B, T = 20, 16, 3, 6


def make(name="lstm", seed=0, **changed) -> HierarchicalLM:
    torch.manual_seed(seed)
    model = LSTM(V, D, 2, 0.0, init_range=0.5) if name == "lstm" else GPT(V, D, 2, 2, T, 0.0)
    return HierarchicalLM(model, V, **({"tie": False, "bias": True, "reduction": "mean"} | changed))


def batch() -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], True)


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
    weights = {name: p.detach().double().numpy() for name, p in objective.head.named_parameters()}
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


def test_a_frequent_word_costs_fewer_coins():
    objective = make()
    torch.nn.init.zeros_(objective.head.weight)
    torch.nn.init.zeros_(objective.head.bias)
    coins = -objective.log_softmax(torch.randn(1, D))[0] / np.log(2)
    np.testing.assert_allclose(coins.detach(), coins.detach().round(), atol=1e-5)
    zipf = 1 / np.arange(1, V + 1)
    zipf /= zipf.sum()
    entropy = -(zipf * np.log2(zipf)).sum()
    assert entropy <= zipf @ coins.detach().numpy() < entropy + 0.1 < np.log2(V)
    assert (coins.diff() >= -1e-5).all()


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_the_two_ways_to_score_agree(name):
    objective = make(name)
    input_ids, labels, *_ = batch()
    scored, _ = objective.log_prob(input_ids, labels)
    predicted, _ = objective.next_log_prob(input_ids, objective.start)
    torch.testing.assert_close(predicted.gather(1, labels[:, -1:]).squeeze(1), scored[:, -1])
    torch.testing.assert_close(predicted.exp().sum(dim=1), torch.ones(B))


def test_the_head_starts_as_its_model_does():
    for name, p in make().head.named_parameters():
        assert 0.3 < p.abs().max() <= 0.5, name
    torch.manual_seed(0)
    head = HierarchicalLM(GPT(900, 64, 1, 2, 8, 0.0), 900, tie=False, bias=True, reduction="mean").head
    assert head.weight.std().item() == pytest.approx(0.02, rel=0.05) and not head.bias.any()


def test_saved_and_loaded_it_predicts_the_same(tmp_path):
    objective, other = make(), make(seed=1)
    save_weights(objective, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    input_ids, labels, *_ = batch()
    assert torch.equal(other.log_prob(input_ids, labels)[0], objective.log_prob(input_ids, labels)[0])


def test_autocast_changes_little(bf16):
    objective = make()
    exact = objective.loss(batch(), None, 0)[0]
    with torch.autocast("cpu", torch.bfloat16):
        rounded = objective.loss(batch(), None, 0)[0]
    assert rounded.dtype == torch.float32 and rounded.item() == pytest.approx(exact.item(), rel=2e-2)


def test_a_tied_tree_is_refused():
    with pytest.raises(UsageError, match=r"objective\.tie=false"):
        make(tie=True)
