"""ELMo's mixture of layers: γ Σ_k s_k h_k with softmax weights s.

Peters et al. 2018, arXiv 1802.05365, equation 1.

B batch, T time, D d_model, K layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """A trained mixture of K layers. Initially, the weights s are equal, and γ is 1."""

    def __init__(self, n_layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_layers))  # softmax inputs; the weights s are the result
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """Mix K layers (B, T, D) into one (B, T, D); the result is zero after each row's length."""
        inside = torch.arange(layers[0].shape[1], device=lengths.device) < lengths[:, None]
        mixed = sum(share * layer for share, layer in zip(self.weights.softmax(dim=0), layers, strict=True))
        return (self.gamma * mixed).masked_fill(~inside[:, :, None], 0.0)
