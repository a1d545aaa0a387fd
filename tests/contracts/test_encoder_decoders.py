"""Properties of every encoder-decoder."""

import pytest
import torch

from retable.core.errors import UsageError
from retable.models.base import EncoderDecoder
from tests.contracts.model_cases import IDS, LENGTHS, OTHERS, B, T, U, V, built, chosen, leaves, of_kind

NAMES = of_kind(EncoderDecoder)
INPUTS = IDS, LENGTHS, OTHERS


@pytest.fixture(params=NAMES, scope="module")
def model(request) -> EncoderDecoder:
    return built(request.param)


def in_stretches(model: EncoderDecoder, lengths: list[int]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Read so many target tokens at a time. Return the states of all and the tensors of the last state."""
    parts, state = [], model.encode(IDS, LENGTHS)
    for stretch in OTHERS.split(lengths, dim=1):
        states, state = model.decode(stretch, state)
        parts.append(states)
    return torch.cat(parts, dim=1), leaves(state)


def test_padding_changes_nothing(model):
    states = model(*INPUTS)
    other = IDS.where(torch.arange(T) < LENGTHS[:, None], 7)
    wider = torch.cat([other, other[:, :2]], dim=1)
    torch.testing.assert_close(model(wider, LENGTHS, OTHERS), states, atol=1e-4, rtol=1e-4)


def test_later_tokens_of_the_target_do_not_show(model):
    states = model(*INPUTS)
    for u in range(U):
        changed = OTHERS.clone()
        changed[:, u:] = (changed[:, u:] + 1) % V
        other = model(IDS, LENGTHS, changed)
        torch.testing.assert_close(other[:, :u], states[:, :u])
        assert (other[:, u:] - states[:, u:]).abs().amax(dim=2).min() > 1e-5


def test_stretches_with_a_state_carried_over_equal_one_pass(model):
    whole, end = in_stretches(model, [U])
    torch.testing.assert_close(model(*INPUTS), whole)
    for lengths in ([1] * U, [1, 4]):
        states, after = in_stretches(model, lengths)
        torch.testing.assert_close(states, whole, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(after, end, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_state_has_its_batch_in_dimension_1(model):
    _, state = model.decode(OTHERS[:, :3], model.encode(IDS, LENGTHS))
    assert all(part.shape[1] == B for part in leaves(state))
    states, _ = model.decode(OTHERS[:, 3:], state)
    rows = torch.tensor([2, 0, 0, 1])
    again, _ = model.decode(OTHERS[rows, 3:], chosen(state, rows))
    torch.testing.assert_close(again, states[rows])


def test_every_source_token_shows_in_every_step_and_no_padding(model):
    states = model(*INPUTS)
    for s in range(T):
        changed = IDS.clone()
        changed[:, s] = (changed[:, s] + 1) % V
        moved = (model(changed, LENGTHS, OTHERS) - states).abs().amax(dim=2)
        assert (moved[s < LENGTHS] > 1e-8).all() and (moved[s >= LENGTHS] < 1e-7).all()


@torch.no_grad()
def test_bf16_continues_from_a_state(model, request):
    if any(isinstance(part, torch.nn.RNNBase) for part in model.modules()):
        request.getfixturevalue("bf16")
    exact = model(*INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = in_stretches(model, [2, 3])
    assert (states.float() - exact).square().mean().sqrt() < 0.1 * exact.std()


@pytest.mark.parametrize("name", [name for name in NAMES if built(name).aligns])
def test_attention_is_shared_out_over_the_source(name):
    shares = built(name).align(*INPUTS)
    torch.testing.assert_close(shares.sum(dim=2), torch.ones(B, U))
    assert not shares.masked_select((torch.arange(T) >= LENGTHS[:, None])[:, None]).any()


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(built(name), "max_length")])
def test_too_long_a_sequence_is_refused(name):
    model = built(name)
    longest = model.max_length
    if longest is None:
        return
    ids, message = torch.ones(1, longest + 1, dtype=torch.long), rf"{longest + 1} tokens.*max_length={longest}"
    for source, target in ((ids, ids[:, :2]), (ids[:, :2], ids)):
        with pytest.raises(UsageError, match=message):
            model(source, torch.tensor([source.shape[1]]), target)
    _, state = model.decode(ids[:, 1:], model.encode(ids[:, :2], torch.tensor([2])))
    with pytest.raises(UsageError, match=message):
        model.decode(ids[:, :1], state)
