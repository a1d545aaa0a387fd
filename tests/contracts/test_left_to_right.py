"""Test properties of every left-to-right model, and of every decoder, which reads left to right after its source."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.models.base import EncoderDecoder, LeftToRight
from tests.contracts.model_cases import IDS, OTHER_LENGTHS, OTHERS, B, T, V, built, chosen, leaves, of_kind

NAMES = of_kind(LeftToRight, EncoderDecoder)


@pytest.fixture(params=NAMES, scope="module")
def model(request) -> nn.Module:
    return built(request.param)


def at_once(model: nn.Module, ids: Tensor) -> Tensor:
    return model(ids)[0] if isinstance(model, LeftToRight) else model(OTHERS, OTHER_LENGTHS, ids)


def start(model: nn.Module, source: Tensor = OTHERS, lengths: Tensor = OTHER_LENGTHS) -> Any:
    return model.start if isinstance(model, LeftToRight) else model.encode(source, lengths)


def read(model: nn.Module, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
    return model(ids, state) if isinstance(model, LeftToRight) else model.decode(ids, state)


def in_stretches(model: nn.Module, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Read this many tokens at a time. Return the states of all tokens, and the tensors of the last state."""
    parts, state = [], start(model)
    for stretch in IDS.split(lengths, dim=1):
        states, state = read(model, stretch, state)
        parts.append(states)
    return torch.cat(parts, dim=1), leaves(state)


def test_the_future_does_not_show(model):
    states = at_once(model, IDS)
    for t in range(T):
        changed = IDS.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other = at_once(model, changed)
        torch.testing.assert_close(other[:, :t], states[:, :t])
        assert (other[:, t:] - states[:, t:]).abs().amax(dim=2).min() > 1e-6


def test_stretches_with_a_state_carried_over_equal_one_pass(model):
    whole, end = in_stretches(model, [T])
    torch.testing.assert_close(at_once(model, IDS), whole)
    for lengths in ([1] * T, [3, 1, 3]):
        states, after = in_stretches(model, lengths)
        torch.testing.assert_close(states, whole, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(after, end, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_state_has_its_batch_in_dimension_1(model):
    _, state = read(model, IDS[:, :4], start(model))
    assert all(part.shape[1] == B for part in leaves(state))
    states, _ = read(model, IDS[:, 4:], state)
    rows = torch.tensor([2, 0, 0, 1])
    again, _ = read(model, IDS[rows, 4:], chosen(state, rows))
    torch.testing.assert_close(again, states[rows])


@torch.no_grad()
def test_bf16_continues_from_a_state(model, request):
    if any(isinstance(part, nn.RNNBase) for part in model.modules()):
        request.getfixturevalue("bf16")
    exact = at_once(model, IDS)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = in_stretches(model, [3, 1, 3])
    assert (states.float() - exact).square().mean().sqrt() < 0.1 * exact.std()


@pytest.mark.parametrize("name", [name for name in NAMES if getattr(built(name), "max_length", None) is not None])
def test_too_long_a_sequence_is_refused(name):
    model = built(name)
    longest = model.max_length
    ids, two = torch.ones(1, longest + 1, dtype=torch.long), torch.tensor([2])
    message = rf"{longest + 1} tokens.*max_length={longest}"
    with pytest.raises(UsageError, match=message):
        read(model, ids, start(model, ids[:, :2], two))
    _, state = read(model, ids[:, 1:], start(model, ids[:, :2], two))
    with pytest.raises(UsageError, match=message):
        read(model, ids[:, :1], state)
    if isinstance(model, EncoderDecoder):
        with pytest.raises(UsageError, match=message):
            model.encode(ids, two + longest - 1)
