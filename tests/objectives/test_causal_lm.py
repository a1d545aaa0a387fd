import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.bilstm import BiLSTM
from retable.models.character_lstm import CharacterLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM

V, D, B, T = 11, 8, 3, 6


def causal_lm(
    name: str, tie: bool = False, bias: bool = True, reduction: str = "mean", projection: float = 0.0
) -> CausalLM:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.1) if name == "lstm" else GPT(V, D, 2, 2, T, 0.0)
    return CausalLM(model, V, tie, bias, reduction, projection)


def batch(fresh: bool = True) -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], fresh)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_an_encoder_is_refused():
    with pytest.raises(UsageError, match=r"BiLSTM reads the sentence from both sides.*recipe=recurrent/lstm or trans"):
        CausalLM(BiLSTM(V, D, D, 1, 0.0), V, tie=False, bias=True, reduction="mean")


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_loss_and_log_prob_are_the_labels_log_probabilities(name):
    objective, (input_ids, labels) = causal_lm(name), batch()[:2]
    hidden = objective.model(input_ids)[0].detach().double().numpy()
    weight, bias = (parameter.detach().double().numpy() for parameter in objective.head.parameters())
    logits = hidden @ weight.T + bias
    expected = np.take_along_axis(log_softmax(logits), labels[..., None].numpy(), axis=2)[..., 0]
    log_probs, _ = objective.log_prob(input_ids, labels)
    assert log_probs.dtype == torch.float32
    np.testing.assert_allclose(log_probs.detach(), expected, atol=1e-5)
    loss, metrics, _ = objective.loss(batch(), None, step=0)
    assert loss.item() == pytest.approx(-expected.mean(), abs=1e-5)
    assert metrics["loss"].item() == loss.item() and not metrics["loss"].requires_grad


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_the_sum_over_time_is_the_mean_times_the_length(name):
    mean, mean_metrics, _ = causal_lm(name).loss(batch(), None, step=0)
    total, total_metrics, _ = causal_lm(name, reduction="time_sum").loss(batch(), None, step=0)
    assert total.item() == pytest.approx(mean.item() * T)
    assert total_metrics == mean_metrics  # nats a token, whatever is minimised


@pytest.mark.parametrize("name", ["lstm", "gpt"])
@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_every_parameter_gets_a_gradient(name, tie, bias):
    objective = causal_lm(name, tie, bias)
    objective.loss(batch(), None, step=0)[0].backward()
    names = {name: p.grad is not None and bool(p.grad.any()) for name, p in objective.named_parameters()}
    assert all(names.values()), names
    assert ("head.bias" in names, "head.weight" in names) == (bias, not tie)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_tying_shares_the_weights(name):
    tied, untied = causal_lm(name, tie=True), causal_lm(name)
    assert tied.head.weight is tied.model.embedding.weight
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters()) == V * D
    torch.optim.SGD(tied.parameters(), lr=1.0).step(lambda: tied.loss(batch(), None, 0)[0].backward())
    assert torch.equal(tied.head.weight, tied.model.embedding.weight)


def test_a_model_without_word_vectors_cannot_share_them():
    model = CharacterLSTM(["<eos>", "ab"], 3, [(1, 4)], 1, D, 1, 0.0, 0.1)
    with pytest.raises(UsageError, match=r"CharacterLSTM has no word embedding.*write objective.tie=false"):
        CausalLM(model, 2, tie=True, bias=True, reduction="mean")


def test_the_head_starts_as_its_model_does():
    torch.manual_seed(0)
    lstm = CausalLM(LSTM(500, 32, 1, 0.0, init_range=0.1), 500, tie=False, bias=True, reduction="mean")
    for parameter in lstm.head.parameters():
        assert 0.095 < parameter.abs().max() <= 0.1
    gpt = CausalLM(GPT(500, 32, 1, 2, 8, 0.0), 500, tie=False, bias=True, reduction="mean")
    assert gpt.head.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not gpt.head.bias.any()


def test_a_fresh_batch_forgets_the_state_and_another_goes_on_from_it():
    objective = causal_lm("lstm")
    _, _, state = objective.loss(batch(), None, step=0)
    start = objective.loss(batch(), None, step=0)[0]
    assert torch.equal(objective.loss(batch(fresh=True), state, step=1)[0], start)
    went_on = objective.loss(batch(fresh=False), state, step=1)[0]
    assert not torch.equal(went_on, start)
    log_probs, _ = objective.log_prob(*[torch.cat([x, x], dim=1) for x in batch()[:2]])
    assert went_on.item() == pytest.approx(-log_probs[:, T:].mean().item(), abs=1e-6)


def test_the_next_tokens_log_probabilities_go_on_from_the_state():
    objective, (ids, _) = causal_lm("lstm"), batch()[:2]
    weight, bias = (parameter.detach().double().numpy() for parameter in objective.head.parameters())
    state = objective.model.start
    for part in ids.split([4, 1, 1], dim=1):
        log_probs, state = objective.next_log_prob(part, state)
    hidden = objective.model(ids)[0][:, -1].detach().double().numpy()
    np.testing.assert_allclose(log_probs.detach(), log_softmax(hidden @ weight.T + bias), atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "time_sum"])
def test_projection_regularisation(reduction):
    # Press and Wolf (2017), section 4: the softmax reads P h, and 0.15 times the norm of P joins the loss.
    objective, (input_ids, labels) = causal_lm("lstm", tie=True, reduction=reduction, projection=0.15), batch()[:2]
    torch.nn.init.normal_(objective.projection.weight)
    projection = objective.projection.weight.detach().double().numpy()
    weight, bias = (parameter.detach().double().numpy() for parameter in objective.head.parameters())
    hidden = objective.model(input_ids)[0].detach().double().numpy()
    log_probs = log_softmax(hidden @ projection.T @ weight.T + bias)
    expected = np.take_along_axis(log_probs, labels[..., None].numpy(), axis=2)[..., 0]
    loss, metrics, _ = objective.loss(batch(), None, step=0)
    assert metrics["loss"].item() == pytest.approx(-expected.mean(), abs=1e-5)
    nats = -expected.mean() * (T if reduction == "time_sum" else 1)
    assert loss.item() == pytest.approx(nats + 0.15 * np.sqrt((projection**2).sum()), abs=1e-4)
    np.testing.assert_allclose(objective.log_prob(input_ids, labels)[0].detach(), expected, atol=1e-5)
    np.testing.assert_allclose(objective.next_log_prob(input_ids, None)[0].detach(), log_probs[:, -1], atol=1e-5)
    loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())


def test_the_projection_starts_as_its_model_does_and_is_left_out_where_it_is_0():
    with_it = causal_lm("lstm", projection=0.15)
    assert 0.08 < with_it.projection.weight.abs().max() <= 0.1
    without = causal_lm("lstm")
    assert sum(p.numel() for p in with_it.parameters()) - sum(p.numel() for p in without.parameters()) == D * D


def test_what_the_model_asks_for_joins_the_loss():
    objective = causal_lm("lstm", reduction="time_sum")
    plain, metrics, _ = objective.loss(batch(), None, step=0)
    objective.model.penalty = torch.tensor(0.25)
    loss, same_metrics, _ = objective.loss(batch(), None, step=0)
    assert loss.item() == pytest.approx(plain.item() + 0.25)
    assert same_metrics == metrics
