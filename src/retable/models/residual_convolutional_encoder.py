"""A deep convolutional sentence encoder with residual links.

The encoder follows Conneau, Schwenk, Barrault and LeCun (2017, "Very Deep Convolutional Networks for Text
Classification"): blocks of two convolutions of width 3 with residual links. The objective computes the maximum over
time. An encoder with one layer is in models/convolutional_encoder.py.

Departures:
- All blocks have the same number of channels and positions, so that each token has a final state. The authors' blocks
  halve the number of positions and double the number of channels.
- LayerNorm and ReLU precede each convolution (He et al. 2016, "Identity Mappings in Deep Residual Networks"). The
  authors use batch normalisation, which makes each text's result depend on the other texts of the batch.

B batch, T time, E d_embedding, D d_model.

System F1 of docs/systems.yaml.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.dropout import Dropout


class Block(nn.Module):
    """Two convolutions with a residual link: x + W₂ ∗ relu(norm(W₁ ∗ relu(norm(x))))."""

    def __init__(self, d_model: int, width: int, dropout: float):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(2))
        self.convolutions = nn.ModuleList(nn.Conv1d(d_model, d_model, width, padding="same") for _ in range(2))
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, padding: Tensor) -> Tensor:
        """Transform states (B, T, D); positions where `padding` (B, T, 1) is True count as zeros."""
        out = hidden
        for norm, convolve in zip(self.norms, self.convolutions, strict=True):
            out = convolve(self.dropout(norm(out).relu()).masked_fill(padding, 0.0).mT).mT
        return hidden + out


class ResidualConvolutionalEncoder(Encoder):
    """An encoder in which each block widens a state's window by 2 · (width − 1) tokens."""

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        n_blocks: PositiveInt,
        width: PositiveInt = 3,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.enter = nn.Conv1d(d_embedding, d_model, width, padding="same")
        self.blocks = nn.ModuleList(Block(d_model, width, dropout) for _ in range(n_blocks))
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length."""
        padding = (torch.arange(input_ids.shape[1], device=input_ids.device) >= lengths[:, None])[:, :, None]
        hidden = self.enter(self.dropout(self.embedding(input_ids)).masked_fill(padding, 0.0).mT).mT
        for block in self.blocks:
            hidden = block(hidden, padding)
        return self.dropout(self.norm(hidden).relu()).masked_fill(padding, 0.0)
