"""Test attention as matrix products: values and gradients are those of attention, with every kind of mask."""

import pytest
import torch
import torch.nn.functional as F

from retable.nn.dot_product import dot_product_attention

B, H, T, S, K = 3, 2, 5, 7, 8


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).requires_grad_()


def padding() -> torch.Tensor:
    return (torch.arange(S) < torch.tensor([7, 4, 1])[:, None])[:, None, None]


def reference(queries, keys, values, mask, causal, scale):
    """Return attention computed query by query, in double precision."""
    rows = []
    for t in range(queries.shape[2]):
        scores = (keys @ queries[:, :, t, :, None]).squeeze(3) * scale
        seen = torch.ones(1, 1, 1, keys.shape[2], dtype=torch.bool) if mask is None else mask
        seen = seen.expand(len(scores), -1, queries.shape[2], -1)[:, :, t]
        scores = scores.masked_fill(~seen, -torch.inf) if seen.dtype == torch.bool else scores + seen
        if causal:
            scores = scores[..., : t + 1]
        weights = scores.exp() / scores.exp().sum(2, keepdim=True)
        rows.append((weights[..., None] * values[:, :, : weights.shape[2]]).sum(2))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("hides", ["nothing", "padding", "the future", "a bias", "a learnt bias"])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_values_and_gradients_are_those_of_a_loop(dtype, close, hides, scale):
    causal = hides == "the future"
    length = T if causal else S
    queries, keys, values = (drawn(B, H, n, K, dtype=dtype) for n in (T, length, length))
    bias = drawn(1, H, T, S, dtype=torch.float32)
    mask = {"padding": padding(), "a bias": bias.detach().to(dtype), "a learnt bias": bias}.get(hides)
    found = dot_product_attention(queries, keys, values, mask, causal, scale=scale)
    weight = drawn(B, H, T, K, dtype=torch.float64).detach()
    learnt = [queries, keys, values] + [bias] * (mask is bias)
    gradients = torch.autograd.grad((found.double() * weight).sum(), learnt)

    exact = [tensor.detach().double().requires_grad_() for tensor in learnt]
    hidden = exact[3] if mask is bias else mask
    expected = reference(*exact[:3], hidden, causal, K**-0.5 if scale is None else scale)
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)
    for own, right in zip(gradients, torch.autograd.grad((expected * weight).sum(), exact), strict=True):
        torch.testing.assert_close(own.double(), right, rtol=close, atol=5 * close)


def test_in_fp32_it_is_torchs_own_kernel():
    """The committed tables were made with torch's kernel."""
    queries, keys, values = (drawn(B, H, T, K, dtype=torch.float32) for _ in range(3))
    expected = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    assert torch.equal(dot_product_attention(queries, keys, values, causal=True), expected)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    queries, keys, values = (drawn(B, H, T, K, dtype=torch.bfloat16) for _ in range(3))
    exact = dot_product_attention(queries, keys, values)
    dropped = torch.stack([dot_product_attention(queries, keys, values, dropout=0.3) for _ in range(400)])
    assert not torch.equal(dropped[0], dropped[1])
    torch.testing.assert_close(dropped.float().mean(0), exact.float(), rtol=0.1, atol=0.1)
