"""Test that the LSTM with products in bf16 equals torch's LSTM in fp32 within rounding, in values and gradients."""

import pytest
import torch
from torch import nn

from retable.nn import fused, lstm
from retable.nn.lstm import LSTM

T, B, D, H, L = 7, 3, 11, 13, 2

pytestmark = pytest.mark.usefixtures("bf16")


@pytest.fixture(autouse=True)
def however_narrow(monkeypatch):
    monkeypatch.setattr(lstm, "NARROW", 1)


def run(layers: nn.LSTM, inputs: torch.Tensor, state: tuple[torch.Tensor, ...] | None) -> list[torch.Tensor]:
    """Return outputs, the final state, and gradients of a weighted sum of both with respect to all inputs and
    weights.
    """
    output, after = layers(inputs, state)
    found = [output, *after]
    generator = torch.Generator().manual_seed(3)
    loss = sum((each.float() * torch.randn(each.shape, generator=generator)).sum() for each in found)
    return [*found, *torch.autograd.grad(loss, [inputs, *(state or ()), *layers.parameters()])]


@pytest.mark.skipif(fused.COMPILED is None, reason="built without a C compiler")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("sizes", [(T, B, D, H), (2, 1, 40, 64), (5, 70, 30, 33)])
def test_equals_torchs_in_fp32_but_for_roundings(sizes, begins, batch_first, monkeypatch):
    torch.manual_seed(0)
    steps, rows, width, hidden = sizes
    layers = LSTM(width, hidden, L, batch_first=batch_first)
    inputs = torch.randn((rows, steps, width) if batch_first else (steps, rows, width), requires_grad=True)
    state = None if begins else tuple(torch.randn(L, rows, hidden, requires_grad=True) for _ in range(2))
    expected = run(layers, inputs, state)
    steps_taken = []
    step = fused.lstm_step_
    monkeypatch.setattr(fused, "lstm_step_", lambda *given: steps_taken.append(step(*given)))
    with torch.autocast("cpu", torch.bfloat16):
        found = run(layers, inputs, state)
    assert len(steps_taken) == L * steps
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert (one.float() - other).norm() < 0.012 * other.norm()


def test_in_fp32_and_for_a_single_step_it_is_torchs():
    torch.manual_seed(0)
    layers, inputs = LSTM(D, H, L), torch.randn(T, B, D)
    theirs = nn.LSTM(D, H, L)
    theirs.load_state_dict(layers.state_dict())
    assert torch.equal(layers(inputs)[0], theirs(inputs)[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layers(inputs[:1])[0], theirs(inputs[:1])[0])


def test_dropout_stands_between_the_layers():
    torch.manual_seed(0)
    layers, inputs = LSTM(D, H, L, dropout=0.999), torch.randn(T, 50, D)
    with torch.no_grad():
        layers.bias_ih_l1.zero_(), layers.bias_hh_l1.zero_(), layers.weight_hh_l1.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        nearly_nothing = layers(inputs)[0]
        layers.eval()
        assert (nearly_nothing == 0).float().mean() > 0.9 > 0.1 > (layers(inputs)[0] == 0).float().mean()
