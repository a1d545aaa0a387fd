"""The block of a Transformer encoder, in which every position attends to all positions.

Vaswani et al. 2017, section 3.1, with BERT's GELU.

B batch, T time, D d_model, H heads.
"""

from typing import Literal

from torch import Tensor, nn

from retable.nn import fused
from retable.nn.attention import Attention
from retable.nn.dropout import Dropout

NORM_EPS = 1e-12  # the value in BERT's code


class EncoderBlock(nn.Module):
    """A block of self-attention, then a feed-forward layer; each has a residual link and a LayerNorm.

    The hidden layer of the feed-forward layer has 4·D units.

    `norm="post"` normalises the residual sum, as in Vaswani et al. and in BERT. "pre" normalises the input of a layer
    (Radford et al. 2019, section 2.3). The GELU is exact, not approximated (Hendrycks and Gimpel 2016, section 2).

    Args:
        dropout: rate on the output of each layer and on attention weights.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float, norm: Literal["post", "pre"] = "post"):
        super().__init__()
        self.attention = Attention(d_model, n_heads, dropout)
        self.attention_norm = nn.LayerNorm(d_model, NORM_EPS)
        self.expand = nn.Linear(d_model, 4 * d_model)
        self.contract = nn.Linear(4 * d_model, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model, NORM_EPS)
        self.dropout = Dropout(dropout)
        self.norm = norm

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, rotation: Tensor | None = None, first: int | None = None
    ) -> Tensor:
        """Transform all states (B, T, D), or only the first `first` states; in both cases they attend to all states.

        `mask` broadcasts to (B, H, T, T) and is True where a position may attend to another; `rotation` is passed to
        the attention.
        """
        if self.norm == "pre":
            normed = self.attention_norm(hidden)
            hidden = hidden[:, :first] + self.dropout(self.attention(normed[:, :first], normed, mask, rotation))
            return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        attended = self.attention(hidden[:, :first], hidden, mask, rotation)
        hidden = self.attention_norm(hidden[:, :first] + self.dropout(attended))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))

    def feed_forward(self, hidden: Tensor) -> Tensor:
        return self.contract(fused.gelu(self.expand(hidden)))
