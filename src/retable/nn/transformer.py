"""The Transformer's block and positions (Vaswani et al. 2017, sections 3.1 to 3.5).

B batch, T time, S earlier positions in a cache, D d_model, H heads, K head size, F feed-forward width.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.nn import fused
from retable.nn.dot_product import dot_product_attention
from retable.nn.dropout import Dropout

ROOM = 64  # number of positions by which a cache's memory grows


class Cache:
    """The keys and values of the S positions that a layer has read: `tensor` (2, B, H, S, K).

    The methods `extended` and `select` return new caches. The old cache remains usable, except after `select` with
    `last`. The first call of `extended` uses the spare room in the old cache's memory, so decoding copies the memory
    only once per ROOM tokens. Gradients pass through at most one decoding step.
    """

    def __init__(self, memory: Tensor, length: int):
        self.length, self.tensor = length, memory[:, :, :, :length]
        self._memory: Tensor | None = memory

    @classmethod
    def empty(cls, keys: Tensor) -> "Cache":
        """Create a cache of 0 positions, for keys with the data type and sizes B, H and K of `keys` (B, H, T, K)."""
        B, H, _, K = keys.shape
        return cls(keys.new_empty(2, B, H, 0, K), 0)

    def extended(self, keys: Tensor, values: Tensor) -> "Cache":
        """Return a cache with T more positions, given their keys and values, (B, H, T, K) each."""
        length = self.length + keys.shape[2]
        memory, self._memory = self._memory, None
        if memory is None or memory.shape[3] < length:
            memory = self._room(len(keys), length)
            memory[:, :, :, : self.length] = self.tensor
        new = memory[:, :, :, self.length : length]
        new[0], new[1] = keys, values
        return Cache(memory, length)

    def select(self, rows: Tensor, last: int | None = None) -> "Cache":
        """Return a cache of the rows with the indices `rows` (R,), in the order of these indices.

        If `last` is given, the row with index rows[i] must equal row i at all but the last `last` positions. Only these
        last positions are copied, within the memory of this cache. After the call, this cache and all caches from which
        it was made are unusable.
        """
        memory = self._memory
        if last is None or memory is None:
            memory = self._room(len(rows), self.length)
            torch.index_select(self.tensor, 1, rows, out=memory[:, :, :, : self.length])
        else:
            recent = self.tensor[:, :, :, max(self.length - last, 0) :]
            recent.copy_(recent.index_select(1, rows))
            self.tensor, self._memory = recent[:0], None
        return Cache(memory, self.length)

    def _room(self, n_rows: int, length: int) -> Tensor:
        """Allocate memory for more than `length` positions, in multiples of ROOM so that freed memory is used again."""
        _, _, H, _, K = self.tensor.shape
        return self.tensor.new_empty(2, n_rows, H, (length // ROOM + 1) * ROOM, K)


Past: TypeAlias = Cache | tuple[()] | None  # () before the first position; None if no cache is used


def angles(length: int, width: int) -> Tensor:
    """Compute the angles t · 10000^(−2i / width) for positions t and i = 0, 1, …: (length, width / 2)."""
    if width % 2:
        raise ValueError(f"a width of {width} is odd, but must be even: sinusoids are in pairs")
    return torch.outer(torch.arange(length), 10000 ** -(torch.arange(0, width, 2) / width))


def sinusoids(length: int, width: int) -> Tensor:
    """Compute position embeddings (length, width): alternating sines and cosines of `angles`.

    Vaswani et al. 2017, section 3.5.
    """
    angle = angles(length, width)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def rotations(length: int, width: int) -> Tensor:
    """Compute the cosines and sines of `angles` for `rotate`: (2, length, width / 2)."""
    angle = angles(length, width)
    return torch.stack([angle.cos(), angle.sin()])


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotate pairs of neighbouring components of heads (B, H, T, K) by angles of their position, in fp32.

    `rotation` (2, T, K / 2) contains the angles' cosines and sines. The product of two rotated vectors depends on the
    distance of their positions, not on the positions (Su et al. 2021, section 3.2).
    """
    cos, sin = rotation
    x, y = heads.float().unflatten(3, (-1, 2)).unbind(4)
    return torch.stack([x * cos - y * sin, x * sin + y * cos], dim=4).flatten(3).to(heads.dtype)


def gelu(x: Tensor) -> Tensor:
    """Compute the Gaussian error linear unit with GPT's tanh approximation.

    Hendrycks and Gimpel 2016, section 2.
    """
    return fused.gelu(x, "tanh")


def swiglu(x: Tensor) -> Tensor:
    """Multiply the second half of x (B, T, 2F) by the SiLU of its first half: (B, T, F) (Shazeer 2020, section 2)."""
    gate, value = x.chunk(2, dim=2)
    return F.silu(gate) * value


class Swish(nn.Module):
    """The function x σ(βx) with a trained β. Initially β is 1, which gives the SiLU.

    Ramachandran, Zoph and Le 2017, arXiv 1710.05941.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (self.beta * x).sigmoid()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | type[nn.Module]] = {
    **{"relu": F.relu, "gelu": gelu, "silu": F.silu, "swiglu": swiglu},
    "swish": Swish,  # a class, because each layer has a separate β
}


class CausalSelfAttention(nn.Module):
    """Scaled dot-product attention from each position to itself and earlier positions.

    Args:
        dropout: rate on attention weights.
        bias: whether linear layers have a bias.
    """

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
        """Return the transformed states (B, T, D), and the cache `past` extended by these positions.

        Args:
            rotation: (2, T, K / 2), for `rotate`.
            mask: (B, 1, T, S + T), True where a position may attend to another; by default the causal mask.
        """
        B, T, D = hidden.shape
        q, k, v = self.query_key_value(hidden).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, T, K)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        if past is not None:
            past = (past or Cache.empty(k)).extended(k, v)
            k, v = past.tensor
        S = k.shape[2] - T
        causal = S == 0 and mask is None
        if S and T > 1 and mask is None:
            mask = torch.ones(T, S + T, dtype=torch.bool, device=q.device).tril(S)
        mixed = dot_product_attention(q, k, v, mask, causal, self.dropout if self.training else 0.0)
        return self.output(mixed.transpose(1, 2).reshape(B, T, D)), past


class Block(nn.Module):
    """A layer of attention and a feed-forward layer, each with a residual link and a LayerNorm.

    `norm="pre"` normalises the input of a layer (Radford et al. 2019, section 2.3), and "post" normalises the residual
    sum (Vaswani et al. 2017, section 3.1). The feed-forward layer is four times as wide as the model. A gated
    feed-forward layer has two thirds of the width of a layer without gates, so that both have the same number of
    parameters (Shazeer 2020, section 3).

    Args:
        dropout: rate on the output of each layer and on attention weights.
        bias: whether linear layers and norms have a bias.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        dropout: float,
        norm: Literal["pre", "post"] = "pre",
        activation: Literal["relu", "gelu", "silu", "swiglu", "swish"] = "gelu",
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
        self.dropout = Dropout(dropout)
        self.norm = norm
        kind = ACTIVATIONS[activation]
        self.activation = kind() if isinstance(kind, type) else kind

    def forward(
        self, hidden: Tensor, past: Past = None, rotation: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Past]:
        """Return transformed states (B, T, D) and the extended cache; the arguments are those of the attention."""
        if self.norm == "pre":
            mixed, past = self.attention(self.attention_norm(hidden), past, rotation, mask)
            hidden = hidden + self.dropout(mixed)
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden))), past
        mixed, past = self.attention(hidden, past, rotation, mask)
        hidden = self.attention_norm(hidden + self.dropout(mixed))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden))), past

    def feed_forward(self, hidden: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(hidden)))
