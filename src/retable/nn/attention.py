"""Multi-head attention for encoders, and for decoders that attend to an encoder.

Vaswani et al. 2017, section 3.2.

B batch, T queries per sequence, S keys per sequence, D d_model, H heads, K head size.
"""

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from retable.nn.dot_product import dot_product_attention
from retable.nn.transformer import rotate


class Attention(nn.Module):
    """Scaled dot-product attention of H heads.

    Args:
        d_head: width of a head; by default D / H.
        scale: factor of the scores; by default 1 / √K. T5 uses the scale 1.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float,
        bias: bool = True,
        d_head: int | None = None,
        scale: float | None = None,
    ):
        super().__init__()
        if d_head is None and d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        width = n_heads * (d_head or d_model // n_heads)
        self.n_heads, self.dropout, self.scale = n_heads, dropout, scale
        self.query = nn.Linear(d_model, width, bias)
        self.key_value = nn.Linear(d_model, 2 * width, bias)
        self.output = nn.Linear(width, d_model, bias)

    def forward(
        self, hidden: Tensor, memory: Tensor | None = None, mask: Tensor | None = None, rotation: Tensor | None = None
    ) -> Tensor:
        """Return states (B, T, D) after attention from `hidden` (B, T, D) to itself or to `memory` (B, S, D).

        Args:
            mask: broadcasts to (B, H, T, S). The mask is True where a position may attend, or contains numbers to add
                to the scores.
            rotation: (2, S, K / 2), see `rotate`. With `memory`, a rotation is allowed only if `memory` begins with the
                states `hidden`.
        """
        keys, values = self.keys_and_values(hidden if memory is None else memory)
        if rotation is not None:
            keys = rotate(keys, rotation)
            rotation = rotation[:, : hidden.shape[1]]
        return self.attend(hidden, keys, values, mask, rotation)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the keys and values, (B, H, S, K) each, of states (B, S, D)."""
        keys, values = self.key_value(memory).chunk(2, dim=2)
        return self._heads(keys), self._heads(values)

    def attend(
        self,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """Return states (B, T, D) after attention from `hidden` (B, T, D) to `keys` and `values`.

        `keys` and `values` come from `keys_and_values`. Only the queries are rotated by `rotation`.
        """
        dropout = self.dropout if self.training else 0.0
        queries = self._heads(self.query(hidden))
        if rotation is not None:
            queries = rotate(queries, rotation)
        mixed = dot_product_attention(queries, keys, values, mask, dropout=dropout, scale=self.scale)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(2, (self.n_heads, -1)).transpose(1, 2)  # (B, H, T, K)


def padding_mask(lengths: Tensor, length: int) -> Tensor:
    """Return a mask (B, 1, 1, length): True on the first `lengths` (B,) tokens of each row, False on padding.

    Args:
        length: number of tokens per row, padding included.
    """
    return (torch.arange(length, device=lengths.device) < lengths[:, None])[:, None, None]


def padding_mask_if_any(lengths: Tensor, length: int) -> Tensor | None:
    """Return the result of `padding_mask` for lengths (B,), or None if no row is padded.

    Attention without a mask saves more time than this check takes. Within torch.compile the result is always a mask,
    because a check of values would divide the graph.

    Args:
        length: number of tokens per row, padding included.
    """
    return None if not is_compiling() and bool((lengths == length).all()) else padding_mask(lengths, length)
