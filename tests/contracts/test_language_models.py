"""Test properties of every objective that predicts the next token."""

import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.noise import NoiseLM
from tests.contracts.model_cases import IDS, T, V, chosen, leaves
from tests.contracts.objective_cases import COUNTS, LANGUAGE_MODELS, SOFTMAXES, built, language_model, loss_of

UNTIED = [kind for kind in SOFTMAXES if kind.__name__ in ("AdaptiveSoftmax", "HierarchicalLM")]
TIED = [kind for kind in SOFTMAXES if kind not in UNTIED]
INPUTS, LABELS = IDS[:, :-1], IDS[:, 1:]


@pytest.fixture(params=LANGUAGE_MODELS)
def name(request) -> str:
    return request.param


@pytest.fixture(params=SOFTMAXES, ids=lambda kind: kind.__name__)
def kind(request) -> type[CausalLM]:
    return request.param


def on_lstm(kind: type[CausalLM], **settings) -> CausalLM:
    torch.default_generator.manual_seed(0)
    objective = language_model(kind, "lstm", **settings)(0.0)
    if hasattr(objective, "count"):
        objective.count(COUNTS)
    return objective


def loss(objective: CausalLM, batch: TokenBatch, state=None):
    torch.default_generator.manual_seed(0)
    return objective.loss(batch, state, 0)


@torch.no_grad()
def test_the_two_ways_to_score_agree_and_are_distributions(name):
    objective = built(name)
    scored, _ = objective.log_prob(INPUTS, LABELS)
    assert scored.dtype == torch.float32
    state = objective.start
    for t in range(T - 1):
        predicted, state = objective.next_log_prob(INPUTS[:, t : t + 1], state)
        assert predicted.dtype == torch.float32
        torch.testing.assert_close(predicted.exp().sum(dim=1), torch.ones(len(IDS)))
        torch.testing.assert_close(predicted.gather(1, LABELS[:, t : t + 1])[:, 0], scored[:, t], rtol=1e-4, atol=1e-5)
    at_once, _ = objective.next_log_prob(INPUTS, None)
    torch.testing.assert_close(at_once, predicted, rtol=1e-4, atol=1e-5)
    _, state = objective.next_log_prob(INPUTS[:, :-1], objective.start)
    rows = torch.tensor([2, 0])
    assert all(part.shape[1] == len(IDS) for part in leaves(state))
    following, _ = objective.next_log_prob(INPUTS[rows, -1:], chosen(state, rows))
    torch.testing.assert_close(following, predicted[rows], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_loss_is_minus_the_mean_log_probability(name):
    objective = built(name)
    if not isinstance(objective, NoiseLM):
        assert loss_of(name, objective)[0].item() == pytest.approx(-objective.log_prob(INPUTS, LABELS)[0].mean().item())
    assert torch.equal(*(loss_of(name, objective)[0], loss_of(name, objective)[1]["loss"]))


def test_the_sum_over_time_is_the_mean_times_the_length(kind):
    batch = TokenBatch(INPUTS, LABELS, True)
    mean, metrics, _ = loss(on_lstm(kind), batch)
    total, same, _ = loss(on_lstm(kind, reduction="time_sum"), batch)
    assert total.item() == pytest.approx(mean.item() * (T - 1)) and same == metrics  # nats per token


def test_a_projection_costs_its_norm_and_stands_before_the_softmax(kind):
    """Press and Wolf (2017), section 4: the softmax reads P h, and 0.3 times the norm of P is added to the loss."""
    batch = TokenBatch(INPUTS, LABELS, True)
    projected, plain = on_lstm(kind, projection=0.3), on_lstm(kind)
    weight = projected.projection.weight
    assert 0.4 < weight.abs().max() <= 0.5  # the range of the initial weights of the model
    plain.load_state_dict({n: p for n, p in projected.state_dict().items() if not n.startswith("projection")})
    model = plain.model.forward
    plain.model.forward = lambda *given: (lambda states, state: (states @ weight.T, state))(*model(*given))
    (found, metrics, _), (expected, same, _) = loss(projected, batch), loss(plain, batch)
    assert found.item() == pytest.approx(expected.item() + 0.3 * weight.norm().item(), rel=1e-5)
    assert metrics["loss"].item() == pytest.approx(same["loss"].item(), rel=1e-5)
    for one, other in zip(
        projected.next_log_prob(INPUTS, None)[:1], plain.next_log_prob(INPUTS, None)[:1], strict=True
    ):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(projected.log_prob(INPUTS, LABELS)[0], plain.log_prob(INPUTS, LABELS)[0])


def test_a_penalty_of_the_model_is_added_to_one_loss(kind):
    objective, batch = on_lstm(kind, reduction="time_sum"), TokenBatch(INPUTS, LABELS, True)
    plain, metrics, _ = loss(objective, batch)
    objective.model.penalty = torch.tensor(0.25)
    penalised, same, _ = loss(objective, batch)
    assert penalised.item() == pytest.approx(plain.item() + 0.25) and same == metrics
    assert objective.model.penalty is None


def test_a_fresh_batch_forgets_the_state_and_another_continues_from_it(kind):
    objective = on_lstm(kind)
    first, second = (TokenBatch(ids[:, :-1], ids[:, 1:], False) for ids in (IDS[:, :4], IDS[:, 3:]))
    _, _, state = loss(objective, first)
    begun, _, _ = loss(objective, second)
    assert torch.equal(loss(objective, second._replace(fresh=True), state)[0], begun)
    continued, _, _ = loss(objective, second, state)
    assert continued.item() != pytest.approx(begun.item())
    if not isinstance(objective, NoiseLM):
        whole, _ = objective.log_prob(INPUTS, LABELS)
        assert continued.item() == pytest.approx(-whole[:, 3:].mean().item(), abs=1e-6)


@pytest.mark.parametrize("kind", TIED, ids=lambda kind: kind.__name__)
def test_a_tied_softmax_shares_the_embedding_and_learns_with_it(kind):
    tied, untied = on_lstm(kind, tie=True, bias=False), on_lstm(kind)
    names = [{name for name, _ in each.named_parameters()} for each in (untied, tied)]
    assert names[0] - names[1] == {"head.weight", "head.bias"}
    assert tied.head.weight is tied.model.embedding.weight and untied.head.bias.shape == (V,)
    loss(tied, TokenBatch(INPUTS, LABELS, True))[0].backward()
    with torch.no_grad():
        for parameter in tied.parameters():
            parameter -= parameter.grad
    assert torch.equal(tied.head.weight, tied.model.embedding.weight)


@pytest.mark.parametrize("kind", UNTIED, ids=lambda kind: kind.__name__)
def test_an_output_layer_without_a_row_per_word_is_not_tied(kind):
    with pytest.raises(UsageError, match=r"objective\.tie=false"):
        on_lstm(kind, tie=True)


def test_the_head_starts_as_its_model_does(kind):
    torch.default_generator.manual_seed(0)
    settings = {"tie": False, "bias": True, "reduction": "mean"} | SOFTMAXES[kind]
    heads = [
        kind(model, 900, **settings).head
        for model in (LSTM(900, 64, 1, 0.0, init_range=0.1), GPT(900, 64, 1, 2, 8, 0.0))
    ]
    for parameter in heads[0].parameters():
        assert 0.07 < parameter.abs().max() <= 0.1
    for name, parameter in heads[1].named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("kind", [kind for kind in SOFTMAXES if issubclass(kind, NoiseLM)], ids=lambda k: k.__name__)
def test_noise_is_for_training_only(kind):
    objective = on_lstm(kind)
    plain = CausalLM(objective.model, V, tie=False, bias=True, reduction="mean")
    plain.head.load_state_dict(objective.head.state_dict())
    torch.testing.assert_close(objective.log_prob(INPUTS, LABELS)[0], plain.log_prob(INPUTS, LABELS)[0])
    torch.testing.assert_close(objective.next_log_prob(INPUTS, None)[0], plain.next_log_prob(INPUTS, None)[0])
    batch = TokenBatch(INPUTS, LABELS, True)
    assert loss(objective, batch)[0] == loss(objective, batch)[0]  # evaluation resets torch's generator
    assert len({objective.loss(batch, None, 0)[0].item() for _ in range(5)}) > 1
    other = language_model(kind, "lstm")(0.0)
    other.load_state_dict(objective.state_dict())  # the state has no counts
    assert torch.equal(other.log_prob(INPUTS, LABELS)[0], objective.log_prob(INPUTS, LABELS)[0])
