import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.training.weights import load_weights, save_weights

V, D, B, T = 20, 16, 3, 6


def make(name="lstm", seed=0, **changed) -> AdaptiveSoftmax:
    torch.manual_seed(seed)
    model = LSTM(V, D, 2, 0.0, init_range=0.5) if name == "lstm" else GPT(V, D, 2, 2, T, 0.0)
    settings = {"tie": False, "bias": True, "reduction": "mean", "cutoffs": [5, 12], "division": 4.0} | changed
    return AdaptiveSoftmax(model, V, **settings)


def batch() -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], True)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum()


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
    weights = {name: p.detach().double().numpy() for name, p in objective.head.named_parameters()}
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


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_the_two_ways_to_score_agree(name):
    objective = make(name)
    input_ids, labels, *_ = batch()
    scored, _ = objective.log_prob(input_ids, labels)
    predicted, _ = objective.next_log_prob(input_ids, objective.start)
    torch.testing.assert_close(predicted.gather(1, labels[:, -1:]).squeeze(1), scored[:, -1])
    torch.testing.assert_close(predicted.exp().sum(dim=1), torch.ones(B))


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_every_parameter_gets_a_gradient(name):
    objective = make(name)
    loss, metrics, _ = objective.loss(batch(), None, 0)
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())
    assert loss.item() == metrics["loss"].item()


def test_the_head_starts_as_its_model_does():
    for name, p in make().head.named_parameters():
        assert 0.3 < p.abs().max() <= 0.5, name
    torch.manual_seed(0)
    head = AdaptiveSoftmax(
        GPT(900, 64, 1, 2, 8, 0.0), 900, tie=False, bias=True, reduction="mean", cutoffs=[300], division=2.0
    ).head
    for weight in (head.head.weight, head.tail[0][0].weight, head.tail[0][1].weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not head.head.bias.any()


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


@pytest.mark.parametrize("cutoffs", [[], [0, 5], [5, 5], [12, 5], [5, 20]])
def test_cutoffs_that_make_no_clusters_are_refused(cutoffs):
    with pytest.raises(UsageError, match=r"cutoffs=.* below the vocabulary's 20; .*objective.cutoffs=\[4,10\]"):
        make(cutoffs=cutoffs)


def test_mistakes_name_the_setting_to_change():
    with pytest.raises(UsageError, match=r"objective\.tie=false"):
        make(tie=True)
    with pytest.raises(UsageError, match=r"nothing of d_model=16 for cluster 2; lower objective\.division"):
        make(division=5.0)


def test_ids_that_do_not_fall_in_frequency_are_refused():
    objective = make()
    objective.count(np.array([0, 90, *range(38, 20, -1)]))  # <unk> may be rare
    with pytest.raises(UsageError, match="tokenizer=word"):
        objective.count(np.arange(20))
