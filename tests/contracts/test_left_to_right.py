"""Properties of every left-to-right model."""

import pytest
import torch

from retable.core.errors import UsageError
from retable.models.base import LeftToRight
from tests.contracts.model_cases import IDS, B, T, V, built, chosen, leaves, of_kind

NAMES = of_kind(LeftToRight)


@pytest.fixture(params=NAMES, scope="module")
def model(request) -> LeftToRight:
    return built(request.param)


def in_stretches(model: LeftToRight, ids: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Read so many ids at a time. Return the states of all and the tensors of the last state."""
    parts, state = [], model.start
    for stretch in ids.split(lengths, dim=1):
        states, state = model(stretch, state)
        parts.append(states)
    return torch.cat(parts, dim=1), leaves(state)


def test_the_future_does_not_show(model):
    states, _ = model(IDS)
    for t in range(T):
        changed = IDS.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other, _ = model(changed)
        torch.testing.assert_close(other[:, :t], states[:, :t])
        assert (other[:, t:] - states[:, t:]).abs().amax(dim=2).min() > 1e-6


def test_stretches_with_a_state_carried_over_equal_one_pass(model):
    whole, end = in_stretches(model, IDS, [T])
    torch.testing.assert_close(model(IDS)[0], whole)
    for lengths in ([1] * T, [3, 1, 3]):
        states, after = in_stretches(model, IDS, lengths)
        torch.testing.assert_close(states, whole, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(after, end, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_state_has_its_batch_in_dimension_1(model):
    _, state = model(IDS[:, :4], model.start)
    assert all(part.shape[1] == B for part in leaves(state))
    states, _ = model(IDS[:, 4:], state)
    rows = torch.tensor([2, 0, 0, 1])
    again, _ = model(IDS[rows, 4:], chosen(state, rows))
    torch.testing.assert_close(again, states[rows])


@torch.no_grad()
def test_bf16_continues_from_a_state(model, request):
    if any(isinstance(part, torch.nn.RNNBase) for part in model.modules()):
        request.getfixturevalue("bf16")
    exact, _ = model(IDS)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = in_stretches(model, IDS, [3, 1, 3])
    assert (states.float() - exact).square().mean().sqrt() < 0.1 * exact.std()


@pytest.mark.parametrize("name", [name for name in NAMES if built(name).max_length is not None])
def test_too_long_a_sequence_is_refused(name):
    model = built(name)
    longest = model.max_length
    ids = torch.zeros(1, longest + 1, dtype=torch.long)
    message = rf"{longest + 1} tokens.*max_length={longest}"
    with pytest.raises(UsageError, match=message):
        model(ids)
    _, state = model(ids[:, :longest], model.start)
    with pytest.raises(UsageError, match=message):
        model(ids[:, :1], state)
