"""Test dropout by a hash: its rate, independence and gradient, and that compiled code draws the same."""

import pytest
import torch

from retable.nn import dropout, fused
from retable.nn.dropout import drop

N = 1 << 20


@pytest.fixture(params=["compiled", "plain"])
def way(request, monkeypatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(fused, "COMPILED", None)
    elif fused.COMPILED is None:
        pytest.skip("built without a C compiler")


def z(share: float, expected: float, n: int) -> float:
    """Return how many standard deviations the observed share of n differs from the rate."""
    return abs(share - expected) / (expected * (1 - expected) / n) ** 0.5


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.65])
def test_the_rate_is_kept_and_what_stays_is_enlarged(way, rate):
    torch.manual_seed(1)
    found = drop(torch.ones(N), rate)
    assert set(found.unique().tolist()) == {0.0, torch.tensor(1 / (1 - rate)).item()}
    assert z((found == 0).float().mean().item(), rate, N) < 4


@pytest.mark.parametrize("distance", [1, 2, 16, 256, 1024, 4096])
def test_places_are_dropped_independently(distance):
    torch.manual_seed(2)
    gone = drop(torch.ones(N), 0.5) == 0
    both = (gone[distance:] & gone[:-distance]).float().mean().item()
    assert z(both, 0.25, N - distance) < 4


def test_calls_are_independent_and_follow_the_seed():
    torch.manual_seed(3)
    first, second = (drop(torch.ones(N), 0.5) == 0 for _ in range(2))
    assert z((first & second).float().mean().item(), 0.25, N) < 4
    torch.manual_seed(3)
    assert torch.equal(drop(torch.ones(N), 0.5) == 0, first)


@pytest.mark.parametrize("power", range(0, 62, 4))
def test_seeds_that_differ_in_one_bit_give_other_places(power):
    one, other = (dropout._dropped(torch.ones(N), seed, 1 << 31, 2.0) == 0 for seed in (12345, 12345 ^ 1 << power))
    assert z((one & other).float().mean().item(), 0.25, N) < 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (3, 4096 + 11)])
def test_compiled_or_not_it_is_the_same(dtype, shape, monkeypatch):
    if fused.COMPILED is None:
        pytest.skip("built without a C compiler")
    x = torch.randn(shape).to(dtype)
    drawn = (987654321987654321, round(0.3 * 2**32), 1 / 0.7)
    compiled = dropout._dropped(x, *drawn)
    monkeypatch.setattr(fused, "COMPILED", None)
    assert torch.equal(dropout._dropped(x, *drawn), compiled) and compiled.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_gradient_goes_through_the_same_places(way, dtype):
    x = torch.randn(40, 30).to(dtype).mT.requires_grad_()  # not contiguous
    y = drop(x, 0.4)
    y.backward(torch.ones_like(y))
    assert torch.equal((x.grad != 0), (y != 0))
    torch.testing.assert_close(y, x.detach() * x.grad)
