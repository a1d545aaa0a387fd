"""The Transformer's block and its positions, shared by its descendants (Vaswani et al. 2017, sections 3.1 to 3.5).

B batch, T time, S time before that, D d_model, H heads, K head size, F feed-forward width.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Past: TypeAlias = Tensor | tuple[()] | None  # keys and values (2, B, H, S, K); () before the first; None keeps none


def angles(length: int, width: int) -> Tensor:
    """(length, width / 2): position t times 10000^(−2i / width), from which both kinds of sinusoids are made."""
    if width % 2:
        raise ValueError(f"sinusoids come in pairs, which a width of {width} does not divide into")
    return torch.outer(torch.arange(length), 10000 ** -(torch.arange(0, width, 2) / width))


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width) to add to embeddings: the sine and cosine of each angle side by side (Vaswani, section 3.5)."""
    angle = angles(length, width)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def rotations(length: int, width: int) -> Tensor:
    """(2, length, width / 2): the cosine and sine of each angle, for `rotate`."""
    angle = angles(length, width)
    return torch.stack([angle.cos(), angle.sin()])


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of neighbours in (B, H, T, K) by its position's angle, in fp32 (Su et al. 2021, section 3.2).

    `rotation` (2, T, K / 2). A product of two rotated vectors depends on how far apart they are, not on where.
    """
    cos, sin = rotation
    x, y = heads.float().unflatten(3, (-1, 2)).unbind(4)
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=4).flatten(3).to(heads.dtype)


def gelu(x: Tensor) -> Tensor:
    """The Gaussian error linear unit, approximated with tanh as in GPT (Hendrycks and Gimpel 2016, section 2)."""
    return F.gelu(x, approximate="tanh")


def swiglu(x: Tensor) -> Tensor:
    """(B, T, 2F) to (B, T, F): the second half, gated by the SiLU of the first (Shazeer 2020, section 2)."""
    gate, value = x.chunk(2, dim=2)
    return F.silu(gate) * value


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": gelu, "silu": F.silu, "swiglu": swiglu}


class CausalSelfAttention(nn.Module):
    """Scaled dot-product attention in which a position sees itself and what came before it."""

    def __init__(self, d_model: int, n_heads: int, dropout: float, bias: bool = True):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.n_heads = n_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(d_model, 3 * d_model, bias)
        self.output = nn.Linear(d_model, d_model, bias)

    def forward(
        self, hidden: Tensor, past: Past = None, rotation: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Past]:
        """(B, T, D) to (B, T, D), and the past with these positions in it; `rotation` (2, T, K / 2) is for `rotate`.

        `mask` (B, 1, T, S + T), where it is given, says who sees whom in place of all that is not later.
        """
        B, T, D = hidden.shape
        q, k, v = self.query_key_value(hidden).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, T, K)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if past is not None:
            new = torch.stack([k, v])
            past = torch.cat([past, new], dim=3) if isinstance(past, Tensor) else new
            k, v = past
        S = k.shape[2] - T
        causal = S == 0 and mask is None
        if S and T > 1 and mask is None:
            mask = torch.ones(T, S + T, dtype=torch.bool, device=q.device).tril(S)
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, dropout_p=self.dropout if self.training else 0.0
        )
        return self.output(mixed.transpose(1, 2).reshape(B, T, D)), past


class Block(nn.Module):
    """Attention and a feed-forward layer, each round a residual link and with a LayerNorm.

    `norm="pre"` normalises what goes into a layer (Radford et al. 2019, section 2.3), "post" the sum that comes out of
    the residual link (Vaswani et al. 2017, section 3.1). The feed-forward layer is four times as wide as the model;
    gated, it has two thirds of that width, for as many parameters (Shazeer 2020, section 3).
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float,
        norm: Literal["pre", "post"] = "pre",
        activation: Literal["relu", "gelu", "silu", "swiglu"] = "gelu",
        bias: bool = True,
    ):
        super().__init__()
        gated = activation == "swiglu"
        d_ff = 8 * d_model // 3 if gated else 4 * d_model
        self.attention_norm = nn.LayerNorm(d_model, bias=bias)
        self.attention = CausalSelfAttention(d_model, n_heads, dropout, bias)
        self.feed_forward_norm = nn.LayerNorm(d_model, bias=bias)
        self.expand = nn.Linear(d_model, 2 * d_ff if gated else d_ff, bias)
        self.contract = nn.Linear(d_ff, d_model, bias)
        self.dropout = nn.Dropout(dropout)
        self.norm = norm
        self.activation = ACTIVATIONS[activation]

    def forward(
        self, hidden: Tensor, past: Past = None, rotation: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Past]:
        """(B, T, D) to (B, T, D); `past`, `rotation` and `mask` are the attention's."""
        if self.norm == "pre":
            mixed, past = self.attention(self.attention_norm(hidden), past, rotation, mask)
            hidden = hidden + self.dropout(mixed)
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden))), past
        mixed, past = self.attention(hidden, past, rotation, mask)
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden))), past

    def feed_forward(self, hidden: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(hidden)))
