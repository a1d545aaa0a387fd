from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.generation.next_token import Counted, Mixed, Trained, next_token
from retable.objectives.causal_lm import CausalLM

ROWS = [[0, 3, 5, 2, 7, 1], [0, 0, 4, 4, 9, 12], [1, 2, 3, 4, 5, 6]]


def log_probs(scores: torch.Tensor) -> np.ndarray:
    assert scores.dtype == torch.float32
    return scores.double().log_softmax(dim=1).numpy()


@pytest.mark.parametrize("lengths", [[6], [1] * 6, [3, 2, 1]], ids=str)
def test_going_on_from_a_state_equals_reading_anew(model, from_scratch, lengths):
    ids, state, read = torch.tensor(ROWS), model.start(3), 0
    for piece in ids.split(lengths, dim=1):
        scores, state = model.extend(piece, state)
        read += piece.shape[1]
        expected = np.stack([from_scratch(row[:read]) for row in ROWS])
        np.testing.assert_allclose(log_probs(scores), expected, atol=1e-4)


def test_rows_can_be_chosen_doubled_and_share_all_but_their_last_tokens(model, from_scratch):
    _, state = model.extend(torch.tensor(ROWS)[:, :4], model.start(3))
    rows = [2, 0, 2, 1]
    scores, _ = model.extend(torch.tensor([[1], [2], [3], [4]]), model.select(state, torch.tensor(rows)))
    expected = np.stack([from_scratch([*ROWS[row][:4], last]) for row, last in zip(rows, [1, 2, 3, 4], strict=True)])
    np.testing.assert_allclose(log_probs(scores), expected, atol=1e-4)
    ids = torch.tensor([[0, 3, 5, 2, 7], [0, 3, 5, 1, 7], [0, 3, 4, 4, 9]])
    rows, more = torch.tensor([1, 2, 1]), torch.tensor([[1], [2], [3]])
    _, state = model.extend(ids, model.start(3))
    for last in (3, 4):  # the second call chooses rows of chosen rows
        scores, state = model.extend(more, model.select(state, rows, last))
        ids = torch.cat([ids[rows], more], dim=1)
        np.testing.assert_allclose(log_probs(scores), [from_scratch(row) for row in ids.tolist()], atol=1e-4)


def test_a_state_is_not_changed(model):
    _, state = model.extend(torch.tensor(ROWS), model.start(3))
    first, _ = model.extend(torch.tensor([[1], [2], [3]]), state)
    model.extend(torch.tensor([[7, 7], [7, 7], [7, 7]]), state)
    again, _ = model.extend(torch.tensor([[1], [2], [3]]), state)
    assert torch.equal(first, again)


@pytest.mark.parametrize("kind", ["gpt"], indirect=True)
def test_a_full_window_begins_anew_with_its_last_half(model, from_scratch, small):
    half = small.max_length // 2
    ids = torch.randint(small.vocab_size, (2, 40), generator=torch.Generator().manual_seed(0))
    state, window = model.start(2), 0
    for t in range(40):
        scores, state = model.extend(ids[:, t : t + 1], state)
        window = window + 1 if window < small.max_length else half
        expected = np.stack([from_scratch(row[t + 1 - window : t + 1]) for row in ids.tolist()])
        np.testing.assert_allclose(log_probs(scores), expected, atol=1e-4)
    scores, _ = model.extend(ids[:, :20], model.start(2))  # a prompt that is longer than the window
    expected = np.stack([from_scratch(row[20 - half : 20]) for row in ids.tolist()])
    np.testing.assert_allclose(log_probs(scores), expected, atol=1e-4)


def test_what_was_in_training_decodes_without_dropout(small):
    objective = small.trained("lstm").train()
    model, ids = Trained(objective), torch.tensor(ROWS)
    assert torch.equal(model.extend(ids, model.start(3))[0], model.extend(ids, model.start(3))[0])


class CautiousSoftmax(CausalLM):
    """A softmax layer that mixes half of a uniform distribution into its output."""

    def log_softmax(self, hidden: torch.Tensor) -> torch.Tensor:
        log_probs = super().log_softmax(hidden)
        return (0.5 * log_probs.exp() + 0.5 / log_probs.shape[1]).log()


class CautiousNext(CausalLM):
    """The same mixture in another place."""

    def next_log_prob(self, input_ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        log_probs, state = super().next_log_prob(input_ids, state)
        return (0.5 * log_probs.exp() + 0.5 / log_probs.shape[1]).log(), state


@pytest.mark.parametrize("cautious", [CautiousSoftmax, CautiousNext])
def test_an_objective_with_another_output_layer_is_asked_itself(small, cautious):
    plain, other = small.trained("gpt"), small.trained("gpt")
    other.__class__ = cautious
    ids = torch.tensor(ROWS)
    scores, mixed = (model.extend(ids, model.start(3))[0] for model in (Trained(plain), Trained(other)))
    torch.testing.assert_close(mixed.exp(), 0.5 * scores.softmax(dim=1) + 0.5 / small.vocab_size)


def test_a_mixture_is_the_average_whoever_its_models_are(small):
    models = [Trained(small.trained("gpt")), small.tree(small.vocab_size, 0), Trained(small.trained("lstm"))]
    weights = np.array([0.2, 0.5, 0.3])
    mixed, ids, more = Mixed(models, weights), torch.tensor(ROWS), torch.tensor([[1], [2]])
    rows, states = torch.tensor([2, 0]), [model.extend(ids, model.start(3))[1] for model in models]
    _, state = mixed.extend(ids, mixed.start(3))
    scores, _ = mixed.extend(more, mixed.select(state, rows))
    expected = sum(
        weight * model.extend(more, model.select(before, rows))[0].softmax(dim=1)
        for weight, model, before in zip(weights, models, states, strict=True)
    )
    torch.testing.assert_close(scores.exp(), expected)


def test_each_model_of_a_mixture_gets_the_tokens_on_its_own_device():
    read = []

    def extend(ids, state):
        read.append(ids.device.type)
        return torch.zeros(1, 3), state

    models = [SimpleNamespace(device=torch.device(name), extend=extend) for name in ("cpu", "meta")]
    scores, state = Mixed(models, np.array([0.5, 0.5])).extend(torch.tensor([[1]]), ["one", "other"])
    torch.testing.assert_close(scores.exp(), torch.full((1, 3), 1 / 3))
    assert read == ["cpu", "meta"] and state == ["one", "other"]


def test_every_kind_of_system_can_be_read(small):
    trained = SimpleNamespace(objective=small.trained("lstm"), protocol="carried")
    counted = SimpleNamespace(next_log_prob=lambda context: np.zeros(3), protocol="")
    mixed = next_token(SimpleNamespace(systems=[trained, counted], weights=np.array([0.5, 0.5]), protocol=""))
    assert isinstance(next_token(trained), Trained) and isinstance(next_token(counted), Counted)
    assert isinstance(mixed, Mixed) and [type(each) for each in mixed.models] == [Trained, Counted]
    with pytest.raises(UsageError, match="SimpleNamespace cannot predict the next word"):
        next_token(SimpleNamespace(log_prob=lambda tokens: tokens, protocol=""))
