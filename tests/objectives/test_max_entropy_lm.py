import numpy as np
import pytest
import torch

from retable.data.streams import TokenBatch
from retable.evaluation.likelihood import Carried
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.max_entropy_lm import BLOCK, MULTIPLIER, MaxEntropyLM

V, D, B, T = 70, 8, 3, 6  # the vocabulary fills two blocks of the table
TABLE = 37 * BLOCK + 5


def make(order=4, name="lstm", **changed) -> MaxEntropyLM:
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.5) if name == "lstm" else GPT(V, D, 2, 2, 16, 0.0)
    settings = {"tie": False, "bias": True, "reduction": "mean", "table_size": TABLE} | changed
    objective = MaxEntropyLM(model, V, order=order, **settings)
    torch.nn.init.normal_(objective.features.weight)
    return objective


def batch() -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], True)


def place(history: list[int]) -> int:
    """Return the place in the table where the weights of a history begin; the last word of the history comes last."""
    hashed = 0
    for word in reversed(history):
        hashed = (hashed + word + 1) * MULTIPLIER % 2**64
    signed = hashed - 2**64 if hashed >= 2**63 else hashed
    return (signed >> 20) % (TABLE // BLOCK) * BLOCK


def by_loop(objective: MaxEntropyLM, stream: list[int]) -> np.ndarray:
    """Return log-probabilities (T, V) after each token of one row; the table is read word by word, and wraps at its
    end.
    """
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


@pytest.mark.parametrize(("order", "name"), [(2, "lstm"), (3, "gpt"), (5, "lstm")])
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
    # Few of 400 histories share a place by accident in a table of this size; more would mean that places ignore words.
    objective = make(4, table_size=100_000 * BLOCK)
    _, places, _ = objective._read(torch.randint(V, (1, 400)), None)
    assert places.shape == (1, 400, 3)
    bigrams, longer = places[..., 0].unique(), places[..., 1:].unique()
    assert len(bigrams) <= V and len(longer) > 0.98 * 2 * 399
    assert not set(bigrams.tolist()) & set(longer.tolist())


def test_a_stream_is_scored_alike_in_segments_of_any_length(monkeypatch):
    objective, tokens = make().eval(), np.random.default_rng(0).integers(0, V, 50).astype(np.uint16)
    whole = Carried(1).log_prob(objective, tokens, boundary=1)
    np.testing.assert_allclose(Carried(1, segment=7).log_prob(objective, tokens, boundary=1), whole, atol=1e-5)
    monkeypatch.setattr("retable.nn.cross_entropy.LOGITS", 3 * V)  # three rows of logits at a time
    np.testing.assert_allclose(Carried(1).log_prob(objective, tokens, boundary=1), whole, atol=1e-5)
