import numpy as np
import pytest
import torch

from retable.data.streams import CarriedStreams, TokenBatch
from retable.evaluation.likelihood import Carried
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.max_entropy_lm import BLOCK, MULTIPLIER, MaxEntropyLM

V, D, B, T = 70, 8, 3, 6  # the vocabulary fills two blocks
TABLE = 37 * BLOCK + 5


def make(order=4, name="lstm", seed=0, **changed) -> MaxEntropyLM:
    torch.manual_seed(seed)
    model = LSTM(V, D, 2, 0.0, init_range=0.5) if name == "lstm" else GPT(V, D, 2, 2, 16, 0.0)
    settings = {"tie": False, "bias": True, "reduction": "mean", "table_size": TABLE} | changed
    objective = MaxEntropyLM(model, V, order=order, **settings)
    torch.nn.init.normal_(objective.features.weight)
    return objective


def ids(length=T + 1) -> torch.Tensor:
    return torch.randint(V, (B, length), generator=torch.Generator().manual_seed(1))


def batch(fresh=True) -> TokenBatch:
    return TokenBatch(ids()[:, :-1], ids()[:, 1:], fresh)


def place(history: list[int]) -> int:
    """Where the weights of a history begin; the last word comes last."""
    hashed = 0
    for word in reversed(history):
        hashed = (hashed + word + 1) * MULTIPLIER % 2**64
    signed = hashed - 2**64 if hashed >= 2**63 else hashed
    return (signed >> 20) % (TABLE // BLOCK) * BLOCK


def by_loop(objective: MaxEntropyLM, stream: list[int]) -> np.ndarray:
    """(T, V) log-probabilities after each token of one row: the table read word by word, wrapping round its end."""
    table = objective.features.weight.detach().double().flatten().numpy()
    hidden, _ = objective.model(torch.tensor(stream)[None])
    logits = objective.head(hidden[0]).detach().double().numpy()
    padded = [-1] * objective.order + stream
    for t in range(len(stream)):
        for n in range(2, objective.order + 1):
            end = objective.order + t + 1
            start = place(padded[end - n + 1 : end])
            logits[t] += [table[(start + word) % len(table)] for word in range(V)]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_equals_a_loop_over_n_grams_and_words(order, name):
    objective, (input_ids, labels, *_) = make(order, name), batch()
    expected = np.stack([by_loop(objective, row.tolist()) for row in input_ids])
    found, _ = objective.log_prob(input_ids, labels)
    np.testing.assert_allclose(
        found.detach(), np.take_along_axis(expected, labels[..., None].numpy(), 2)[..., 0], atol=1e-4
    )
    predicted, _ = objective.next_log_prob(input_ids, objective.start)
    np.testing.assert_allclose(predicted.detach(), expected[:, -1], atol=1e-4)
    loss, metrics, _ = objective.loss(batch(), None, 0)
    assert loss.item() == pytest.approx(-found.mean().item(), abs=1e-5) and metrics["loss"].item() == loss.item()


def test_histories_of_every_length_have_their_own_place():
    # Or they would be no n-grams: with as many places as this, few of 400 histories may meet by accident.
    objective = make(4, table_size=100_000 * BLOCK)
    _, places, _ = objective._read(torch.randint(V, (1, 400)), None)
    assert places.shape == (1, 400, 3)
    bigrams, longer = places[..., 0].unique(), places[..., 1:].unique()
    assert len(bigrams) <= V and len(longer) > 0.98 * 2 * 399
    assert not set(bigrams.tolist()) & set(longer.tolist())


def test_without_weights_it_is_the_model_alone():
    objective = make()
    torch.nn.init.zeros_(objective.features.weight)
    plain = CausalLM(objective.model, V, tie=False, bias=True, reduction="mean")
    plain.head.load_state_dict(objective.head.state_dict())
    torch.testing.assert_close(objective.log_prob(*batch()[:2])[0], plain.log_prob(*batch()[:2])[0])


def test_every_tensor_of_the_state_has_the_batch_in_dimension_one():
    objective = make()
    _, (inner, history) = objective.log_prob(*batch()[:2])
    assert history.shape == (1, B, 2) and all(part.shape[1] == B for part in inner)
    rows = torch.tensor([2, 0])
    chosen = tuple(part[:, rows] for part in inner), history[:, rows]
    again = torch.tensor([[5], [6]])
    expected, _ = objective.next_log_prob(torch.cat([batch().input_ids[rows], again], dim=1), None)
    torch.testing.assert_close(objective.next_log_prob(again, chosen)[0], expected)


def test_a_stream_is_scored_alike_in_segments_of_any_length(monkeypatch):
    objective, tokens = make().eval(), np.random.default_rng(0).integers(0, V, 50).astype(np.uint16)
    whole = Carried(1).log_prob(objective, tokens, boundary=1)
    np.testing.assert_allclose(Carried(1, segment=7).log_prob(objective, tokens, boundary=1), whole, atol=1e-5)
    monkeypatch.setattr("retable.nn.cross_entropy.LOGITS", 3 * V)  # three rows of logits at a time
    np.testing.assert_allclose(Carried(1).log_prob(objective, tokens, boundary=1), whole, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_every_parameter_gets_a_gradient_and_weights_only_where_a_history_leads(name):
    objective = make(name=name)
    objective.loss(batch(), None, 0)[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())
    reached = np.zeros(TABLE // BLOCK * BLOCK, bool)
    for row in batch().input_ids.tolist():
        padded = [-1] * 4 + row
        for end in range(5, len(padded) + 1):
            for n in (2, 3, 4):
                reached[(place(padded[end - n + 1 : end]) + np.arange(V)) % len(reached)] = True
    np.testing.assert_array_equal(objective.features.weight.grad.flatten().numpy() != 0, reached)


def test_the_gradient_of_the_weights_is_that_of_differences():
    objective = make()
    objective.loss(batch(), None, 0)[0].backward()
    flat, slope = objective.features.weight.data.view(-1), objective.features.weight.grad.view(-1)
    for index in slope.abs().topk(5).indices:
        original, losses = flat[index].item(), []
        for step in (1e-2, -1e-2):
            flat[index] = original + step
            losses.append(objective.loss(batch(), None, 0)[0].item())
        flat[index] = original
        assert slope[index].item() == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=2e-2)


def test_n_grams_learn_what_a_model_without_memory_cannot():
    # The third word is the sum of the two before it; the hidden states are all zero.
    rng = np.random.default_rng(0)
    tokens = [1, 2]
    for _ in range(600):
        tokens.append((tokens[-1] + tokens[-2] + int(rng.integers(2))) % 5)
    objective = make(order=3, table_size=4000 * BLOCK)
    torch.nn.init.zeros_(objective.features.weight)
    torch.nn.init.zeros_(objective.head.weight).requires_grad_(False)
    batches = CarriedStreams(np.array(tokens), batch_size=1, length=100)
    optimizer, state = torch.optim.Adam(objective.features.parameters(), lr=0.2), None
    for step in range(120):
        optimizer.zero_grad()
        loss, _, (_, history) = objective.loss(batches.batch(step), state, step)
        loss.backward()
        optimizer.step()
        state = None, history
    assert loss.item() == pytest.approx(np.log(2), abs=0.1)
