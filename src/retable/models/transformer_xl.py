"""Transformer-XL, a Transformer that attends beyond its segment (Dai et al. 2019, arXiv 1901.02860).

Each layer attends to its inputs in the segment, and to its inputs at tokens before the segment. The earlier inputs are
kept as a memory without gradient (section 3.2). Positions are relative: the score of a query q for a key k is (q + u)·k
+ (q + v)·W_R R. The vectors u and v are learnt, and R is a sinusoid of the distance (section 3.3). As in the authors'
code, norms follow the residual sums, embeddings are scaled by √D, and all layers share u and v.

B batch, T tokens of the segment, M tokens of the memory, S = M + T, D d_model, H heads, K head size, L n_layers.

System C8 of docs/systems.yaml.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dot_product import dot_product_attention
from retable.nn.dropout import Dropout
from retable.nn.variational import LockedDropout


class TransformerXL(LeftToRight):
    """A left-to-right model with a memory of earlier positions.

    In training, a token attends to its segment up to the token itself, and to the `memory` tokens before the segment.
    In evaluation, a token attends to itself and to the `evaluation_memory` tokens before it, so that segment limits
    have no effect. With `variational`, all positions have the same dropout mask, as in the paper's experiments on the
    Penn Treebank (section 4.1).

    Args:
        d_model, d_inner: width of the states; width inside the feed-forward layers.
        dropout, attention_dropout: rate on states; rate on attention weights.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        d_inner: PositiveInt,
        memory: NonNegativeInt,
        evaluation_memory: NonNegativeInt,
        dropout: Rate,
        attention_dropout: Rate,
        variational: bool = False,
    ):
        super().__init__()
        if d_model % n_heads or d_model % 2:
            raise ValueError(f"d_model={d_model} must be even and a multiple of n_heads={n_heads}")
        self.d_model, self.memory, self.evaluation_memory = d_model, memory, evaluation_memory
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.content_bias = nn.Parameter(torch.empty(d_model))  # the vectors u of all heads
        self.position_bias = nn.Parameter(torch.empty(d_model))  # the vectors v of all heads
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)
        self.layers = nn.ModuleList(
            Layer(d_model, n_heads, d_inner, self.dropout, attention_dropout) for _ in range(n_layers)
        )
        self.apply(self.initialise)
        for bias in (self.content_bias, self.position_bias):
            nn.init.normal_(bias, std=0.02)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Draw N(0, 0.02²) weights, and set biases to 0, also for the objective's head."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        """Return the hidden states (B, T, D) of ids (B, T) read after the memory `state`, and the next memory.

        The memory (L, B, M, D) contains each layer's inputs at the last positions: at most `memory` positions in
        training, and at most `evaluation_memory` positions in evaluation.
        """
        B, T = input_ids.shape
        hidden = self.dropout(self.embedding(input_ids) * self.d_model**0.5)
        before = hidden.new_empty(len(self.layers), B, 0, self.d_model) if state is None else state
        kept = self.memory if self.training else self.evaluation_memory
        S = before.shape[2] + T
        distances = torch.arange(S - 1, -1, -1, device=input_ids.device)
        positions = self.dropout(sinusoids(distances, self.d_model)[None])[0]
        ages = distances - distances[-T:, None]  # (T, S): how far each key is before each query
        seen = (ages >= 0) if self.training else (ages >= 0) & (ages <= kept)
        after = []
        for layer, memory in zip(self.layers, before, strict=True):
            context = torch.cat([memory, hidden], dim=1)
            after.append(context[:, max(S - kept, 0) :].detach())
            hidden = layer(hidden, context, positions, seen, self.content_bias, self.position_bias)
        return self.dropout(hidden), torch.stack(after)


class Layer(nn.Module):
    """Attention with relative positions, then a feed-forward network, with LayerNorm after each residual sum."""

    def __init__(self, d_model: int, n_heads: int, d_inner: int, dropout: nn.Module, attention_dropout: float):
        super().__init__()
        self.n_heads, self.attention_dropout = n_heads, attention_dropout
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key_value = nn.Linear(d_model, 2 * d_model, bias=False)
        self.position = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)
        self.attention_norm = nn.LayerNorm(d_model)
        self.expand = nn.Linear(d_model, d_inner)
        self.contract = nn.Linear(d_inner, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = dropout

    def forward(
        self,
        hidden: Tensor,
        context: Tensor,
        positions: Tensor,
        seen: Tensor,
        content_bias: Tensor,
        position_bias: Tensor,
    ) -> Tensor:
        """Transform states (B, T, D), which attend to `context` (B, S, D): a memory, then the states.

        Args:
            positions: (S, D), embeddings of the distances S−1 to 0.
            seen: (T, S), True where a query may attend to a key.
            content_bias, position_bias: (D,) each, u and v of all heads.
        """
        B, T, D = hidden.shape
        heads = self.n_heads, D // self.n_heads
        q = self.query(hidden)
        by_content = (q + content_bias).view(B, T, *heads).transpose(1, 2)  # (B, H, T, K)
        by_position = (q + position_bias).view(B, T, *heads).transpose(1, 2)
        k, v = self.key_value(context).view(B, -1, 2, *heads).permute(2, 0, 3, 1, 4)  # (B, H, S, K)
        r = self.position(positions).view(-1, *heads).transpose(0, 1)  # (H, S, K)
        scores = shift(by_position @ r.mT) * heads[1] ** -0.5  # (B, H, T, S)
        dropout = self.attention_dropout if self.training else 0.0
        mixed = dot_product_attention(by_content, k, v, scores.masked_fill(~seen, float("-inf")), dropout=dropout)
        attended = self.output(mixed.transpose(1, 2).reshape(B, T, D))
        hidden = self.attention_norm(hidden + self.dropout(attended))
        expanded = self.dropout(F.relu(self.expand(hidden)))
        return self.feed_forward_norm(hidden + self.dropout(self.contract(expanded)))


def sinusoids(distances: Tensor, d_model: int) -> Tensor:
    """Return (S, D): the sines, then the cosines, of distances (S,), at wavelengths from 2π to 20000π.

    Vaswani et al. 2017.
    """
    frequencies = 10000 ** (-torch.arange(0, d_model, 2, device=distances.device) / d_model)
    angles = distances[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def shift(scores: Tensor) -> Tensor:
    """Rearrange scores (…, T, S) from one column per distance (S−1 to 0) to one column per key (0 to S−1).

    Row i moves left by T−1−i; one reshape moves all rows at once (appendix B). The values that fill a row on the right
    are for keys after the query, and the caller must mask them.
    """
    *rest, T, S = scores.shape
    return F.pad(scores, (1, 0)).view(*rest, S + 1, T)[..., 1:, :].reshape(*rest, T, S)
