"""The Transformer's block, shared by its descendants (Vaswani et al. 2017, sections 3.1 to 3.3).

B batch, T time, D d_model, H heads, K head size.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class CausalSelfAttention(nn.Module):
    """Scaled dot-product attention in which a position sees itself and what came before it."""

    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.n_heads = n_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        B, T, D = hidden.shape
        q, k, v = self.query_key_value(hidden).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)  # (B, H, T, K)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        return self.output(mixed.transpose(1, 2).reshape(B, T, D))


class Block(nn.Module):
    """Attention and a feed-forward layer of four times the width, each behind a LayerNorm and round a residual link.

    LayerNorm stands before the layers as in GPT-2 (Radford et al. 2019, section 2.3).
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float):
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = CausalSelfAttention(d_model, n_heads, dropout)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.expand = nn.Linear(d_model, 4 * d_model)
        self.contract = nn.Linear(4 * d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden)))
        expanded = F.gelu(self.expand(self.feed_forward_norm(hidden)), approximate="tanh")
        return hidden + self.dropout(self.contract(expanded))
