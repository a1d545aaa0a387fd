"""Multi-head attention for encoders and for decoders that look at an encoder (Vaswani et al. 2017, section 3.2).

B batch, T time of the queries, S time of what is attended to, D d_model, H heads, K head size.
"""

import torch
from torch import Tensor, nn

from retable.nn.dot_product import dot_product_attention
from retable.nn.transformer import rotate


class Attention(nn.Module):
    """Scaled dot-product attention of H heads from each position of a sequence to all that a mask lets it see.

    Heads are D / H wide unless `d_head` says otherwise; `scale` is 1 / √K unless given (T5 has 1).
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
        """(B, T, D), which looks at itself or at `memory` (B, S, D), to (B, T, D).

        `mask`, of a shape that broadcasts to (B, H, T, S), is True where a position may look, or a number to add to
        its score. `rotation` (2, S, K / 2) is for `rotate`, where it looks at itself or is the beginning of `memory`.
        """
        keys, values = self.keys_and_values(hidden if memory is None else memory)
        if rotation is not None:
            keys = rotate(keys, rotation)
            rotation = rotation[:, : hidden.shape[1]]
        return self.attend(hidden, keys, values, mask, rotation)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) to keys and values, (B, H, S, K) each."""
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
        """(B, T, D) and what `keys_and_values` made of a memory to (B, T, D); `rotation` is the queries'."""
        dropout = self.dropout if self.training else 0.0
        queries = self._heads(self.query(hidden))
        if rotation is not None:
            queries = rotate(queries, rotation)
        mixed = dot_product_attention(queries, keys, values, mask, dropout=dropout, scale=self.scale)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _heads(self, projected: Tensor) -> Tensor:
        """(B, T, H · K) to (B, H, T, K)."""
        return projected.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


def padding_mask(lengths: Tensor, length: int) -> Tensor:
    """(B,) lengths to (B, 1, 1, length): True on the tokens, False on the padding behind them."""
    return (torch.arange(length, device=lengths.device) < lengths[:, None])[:, None, None]


def padding_mask_if_any(lengths: Tensor, length: int) -> Tensor | None:
    """The same, or None where no row is padded: attention without a mask is faster by more than it costs to look."""
    return None if bool((lengths == length).all()) else padding_mask(lengths, length)
