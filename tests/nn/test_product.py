"""Test that products by oneDNN equal torch's, in layers and in the softmax, forward and backward."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from retable.nn import product as products
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob
from retable.nn.product import Linear, pays, product, use_faster_products

N, D, V = 9, 6, 11

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")


@pytest.fixture(autouse=True)
def taken(monkeypatch) -> list[tuple[int, int]]:
    """Use oneDNN for products of any size, on any CPU. Return the sizes of the matrices that were packed."""
    found: list[tuple[int, int]] = []
    prepacked = products.prepacked

    def record(weight: torch.Tensor, n_rows: int) -> products.Times:
        found.append(tuple(weight.shape))
        return prepacked(weight, n_rows)

    for name, value in {"ROWS": 1, "PRODUCTS": 1, "_amd": lambda: True, "prepacked": record}.items():
        monkeypatch.setattr(products, name, value)
    return found


def test_it_is_the_product_and_asks_for_no_gradient(taken):
    rows, weight = torch.randn(N, D), torch.randn(V, D)
    torch.testing.assert_close(product(rows, weight), rows @ weight.mT)
    torch.testing.assert_close(product(rows.mT.contiguous().mT, weight.mT.contiguous().mT), rows @ weight.mT)
    assert taken == [(V, D), (V, D)]
    weight.requires_grad_()
    assert not pays(rows, weight) and product(rows, weight).requires_grad
    assert not pays(rows.double(), weight.double()) and not pays(rows.bfloat16(), weight.bfloat16())


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(N, D), (3, 4, D), (D,)])
def test_a_layer_is_torchs_in_value_and_gradient(shape, bias, frozen, taken):
    theirs = nn.Linear(D, V, bias)
    theirs.weight.requires_grad_(not frozen)
    ours = nn.Sequential(copy.deepcopy(theirs))
    use_faster_products(ours)
    assert type(ours[0]) is Linear and list(ours.state_dict()) == [f"0.{name}" for name in theirs.state_dict()]
    inputs = torch.randn(shape, requires_grad=True)
    above = torch.randn(*shape[:-1], V)
    found, expected = ours(inputs), theirs(inputs)
    torch.testing.assert_close(found, expected)
    learnt = [inputs, *(p for p in theirs.parameters() if p.requires_grad)]
    own = [inputs, *(p for p in ours.parameters() if p.requires_grad)]
    torch.testing.assert_close(
        torch.autograd.grad(found, own, above), torch.autograd.grad(expected, learnt, above), rtol=1e-5, atol=1e-5
    )
    assert len(taken) == (2 if frozen else 3)


def test_under_autocast_and_in_double_precision_it_is_torchs(taken):
    layer = Linear(D, V)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(N, D)).dtype == torch.bfloat16
    assert layer.double()(torch.randn(N, D).double()).dtype == torch.float64
    assert not taken


@pytest.mark.parametrize("logits", [1, 4 * V, 1 << 20])
@pytest.mark.parametrize("bias", [False, True])
def test_a_softmax_by_it(bias, logits, taken, monkeypatch):
    monkeypatch.setattr("retable.nn.cross_entropy.LOGITS", logits)
    hidden, weight = torch.randn(N, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    added, labels = torch.randn(V, requires_grad=True) if bias else None, torch.randint(V, (N,))
    learnt = [hidden, weight, *([added] if bias else [])]
    expected = F.cross_entropy(F.linear(hidden, weight, added), labels)
    loss = linear_cross_entropy(hidden, weight, added, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        torch.autograd.grad(loss, learnt), torch.autograd.grad(expected, learnt), rtol=1e-5, atol=1e-6
    )
    assert taken
    with torch.no_grad():
        found = linear_log_prob(hidden, weight, added, labels)
    torch.testing.assert_close(-found.mean(), expected.detach())
