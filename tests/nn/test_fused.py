"""Test that compiled functions give torch's results, within rounding to bf16."""

from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F

from retable.models.gpt import GPT
from retable.nn import fused, product
from retable.nn.product import use_faster_products

pytestmark = pytest.mark.skipif(find_spec("retable.nn._fused") is None, reason="built without a C compiler")
ROUNDING = 2**-8  # largest relative error of a number in bf16


def spread(*shape: int) -> torch.Tensor:
    """Draw small numbers and a few large ones of both signs, in bf16."""
    torch.manual_seed(sum(shape))
    return (torch.randn(shape) * torch.tensor([0.01, 1.0, 8.0, 90.0])[torch.randint(4, shape)]).bfloat16()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 4096 + 17)])
def test_gelu_and_its_gradient(approximate, shape):
    x = spread(*shape).requires_grad_()
    exact = x.detach().double().requires_grad_()
    y, expected = fused.gelu(x, approximate), F.gelu(exact, approximate=approximate)
    above = torch.randn(shape).bfloat16()
    y.backward(above)
    expected.backward(above.double())
    torch.testing.assert_close(y.double(), expected, rtol=ROUNDING, atol=1e-6)
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=ROUNDING, atol=1e-5)


def test_gelu_of_what_is_not_dense_and_in_other_types():
    x = spread(6, 8).mT
    torch.testing.assert_close(fused.gelu(x), F.gelu(x.float()).bfloat16(), rtol=ROUNDING, atol=1e-6)
    assert torch.equal(fused.gelu(x.float(), "tanh"), F.gelu(x.float(), approximate="tanh"))


def test_a_number_that_is_none_goes_on():
    x = torch.tensor([1.0, torch.nan, 2.0]).bfloat16()
    assert fused.gelu(x).isnan().any()
    losses, _ = fused.cross_entropy_(torch.full((1, 40), torch.nan).bfloat16(), None, torch.tensor([3]))
    assert losses.isnan().all()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", [1, 2, 33, 1000])
def test_cross_entropy_and_its_slopes(bias, n):
    logits, labels = spread(9, n), torch.randint(n, (9,))
    added = torch.randn(n) if bias else None
    exact = (logits.double() + (0 if added is None else added.double())).requires_grad_()
    expected = F.cross_entropy(exact, labels, reduction="none")
    (slopes,) = torch.autograd.grad(expected.sum(), exact)
    losses, totals = fused.cross_entropy_(logits, added, labels)
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    denominators = (exact - exact.amax(1, keepdim=True)).exp().sum(1).detach()
    torch.testing.assert_close(totals.double(), denominators, rtol=1e-5, atol=0)
    torch.testing.assert_close(logits / totals[:, None].double(), slopes, rtol=ROUNDING, atol=1e-6)


def test_columns_are_added_up():
    rows, shares, sums = spread(7, 4096 + 5), torch.rand(7), torch.randn(4096 + 5)
    expected = sums.double() + rows.double().mT @ shares.double()
    fused.add_column_sums_(sums, rows, shares)
    torch.testing.assert_close(sums.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [None, (2, 3, 5, 70), (1, 3, 5, 70), (2, 1, 1, 70), (5, 70), (1, 1, 5, 1)])
def test_attention_weights_and_their_gradient(shape):
    scores = spread(2, 3, 5, 70).clamp(-20, 20)
    bias = None if shape is None else torch.randn(shape)
    if shape == (5, 70):
        bias.masked_fill_(torch.ones(5, 70).triu(1) > 0, -torch.inf)
    exact = [scores.double().requires_grad_(), *([] if bias is None else [bias.double().requires_grad_()])]
    given = [scores.clone().requires_grad_(), *([] if bias is None else [bias.requires_grad_()])]
    expected = (sum(exact[1:], 0.3 * exact[0])).softmax(3)
    weights = fused.AttentionWeights.apply(given[0] * 1, bias, 0.3)
    torch.testing.assert_close(weights.double(), expected, rtol=ROUNDING, atol=1e-6)
    above = torch.randn(scores.shape).bfloat16()
    weights.backward(above)
    expected.backward(above.double())
    for one, other in zip(given, exact, strict=True):
        assert one.grad.dtype == one.dtype
        assert (one.grad - other.grad).norm() < 0.01 + 0.01 * other.grad.norm()  # 0 for a bias of all scores


@pytest.mark.parametrize("shape", [(1, 1), (7, 64), (2, 3, 200)])
def test_rms_norm_and_its_gradient(shape):
    torch.manual_seed(0)
    x = (3 * torch.randn(shape)).requires_grad_()
    norm = fused.RMSNorm(shape[-1], eps=1e-6)
    torch.nn.init.normal_(norm.weight)
    above = torch.randn(shape).bfloat16()
    expected = norm(x)
    slopes = torch.autograd.grad(expected, [x, norm.weight], above.float())
    with torch.autocast("cpu", torch.bfloat16):
        normed = norm(x)
    assert expected.dtype == torch.float32 and normed.dtype == torch.bfloat16
    torch.testing.assert_close(normed.float(), expected, rtol=ROUNDING, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(normed, [x, norm.weight], above), slopes, rtol=1e-4, atol=1e-5)


def test_one_thread_and_two_give_the_same():
    logits, labels = spread(50, 5000), torch.randint(5000, (50,))
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        slopes = logits.clone()
        results.append((*fused.cross_entropy_(slopes, None, labels), slopes, fused.gelu(logits)))
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@pytest.mark.parametrize("autocast", [False, True])
def test_within_torch_compile_all_is_torchs(autocast, monkeypatch):
    monkeypatch.setattr(product, "ROWS", 1), monkeypatch.setattr(product, "PRODUCTS", 1)
    torch.manual_seed(0)
    model = GPT(20, 8, 1, 2, 6, 0.5)
    use_faster_products(model)
    whole = torch.compile(model, backend="eager", fullgraph=True)
    ids = torch.randint(20, (3, 6))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        whole(ids)[0].float().sum().backward()
        torch.testing.assert_close(whole.eval()(ids)[0], model.eval()(ids)[0], rtol=0.02, atol=0.02)
    assert all(p.grad is not None for p in model.parameters())
