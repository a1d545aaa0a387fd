import pytest
import torch

from retable.nn.attention import Attention, padding_mask, padding_mask_if_any

B, T, S, D, H = 2, 4, 5, 8, 2


def by_hand(attention: Attention, hidden: torch.Tensor, memory: torch.Tensor, scale: float, added: torch.Tensor):
    """Head by head; `added` (B, H, T, S) comes on top of the scores."""
    q, (k, v) = attention.query(hidden), attention.key_value(memory).chunk(2, dim=2)
    mixed = torch.empty_like(q)
    for h, head in enumerate(torch.arange(q.shape[2]).split(q.shape[2] // H)):
        scores = q[..., head] @ k[..., head].mT * scale + added[:, h]
        mixed[..., head] = scores.softmax(dim=2) @ v[..., head]
    return attention.output(mixed)


@pytest.mark.parametrize("settings", [{}, {"d_head": 6, "scale": 1.0, "bias": False}])
def test_equals_attention_head_by_head(settings):
    torch.manual_seed(0)
    attention, hidden, memory = Attention(D, H, 0.0, **settings), torch.randn(B, T, D), torch.randn(B, S, D)
    scale = settings.get("scale", (D // H) ** -0.5)
    expected = by_hand(attention, hidden, memory, scale, torch.zeros(B, H, T, S))
    torch.testing.assert_close(attention(hidden, memory), expected)
    bias = torch.randn(B, H, T, S)
    torch.testing.assert_close(
        attention(hidden, memory, bias), by_hand(attention, hidden, memory, scale, bias)
    )  # a number for each score
    itself = by_hand(attention, hidden, hidden, scale, torch.zeros(B, H, T, T))
    torch.testing.assert_close(attention(hidden), itself)


def test_rows_without_padding_have_no_mask():
    assert padding_mask_if_any(torch.tensor([3, 3]), 3) is None
    for lengths, length in (([3, 2], 3), ([3, 3], 4)):
        mask = padding_mask_if_any(torch.tensor(lengths), length)
        assert mask is not None and torch.equal(mask, padding_mask(torch.tensor(lengths), length))
