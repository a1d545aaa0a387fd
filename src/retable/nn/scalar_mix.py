"""ELMo's mixture of layers: γ Σ_k s_k h_k, the weights s a softmax (Peters et al. 2018, arXiv 1802.05365, equation 1).

B batch, T time, D d_model, K layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-12


class ScalarMix(nn.Module):
    """K layers to one. The weights start equal, γ at 1.

    layer_norm: bring each layer to mean 0 and variance 1 first, where the layers' scales differ (section 3.2). As in
    the authors' AllenNLP, there is one mean and one variance of all numbers of a layer in the batch, padding left out,
    and nothing is learnt; so a row's result depends on the rows beside it.
    """

    def __init__(self, n_layers: int, layer_norm: bool = False):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_layers))  # before the softmax
        self.gamma = nn.Parameter(torch.ones(()))
        self.layer_norm = layer_norm

    def forward(self, layers: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """K layers (B, T, D), padded behind each row's length, to (B, T, D), zero on padding."""
        inside = torch.arange(layers[0].shape[1], device=lengths.device) < lengths[:, None]
        if self.layer_norm:
            layers = [standardise(layer, inside) for layer in layers]
        mixed = sum(share * layer for share, layer in zip(self.weights.softmax(dim=0), layers, strict=True))
        return (self.gamma * mixed).masked_fill(~inside[:, :, None], 0.0)


def standardise(layer: Tensor, inside: Tensor) -> Tensor:
    """(B, T, D) less its mean and over its standard deviation, both of the numbers `inside` (B, T)."""
    variance, mean = torch.var_mean(layer[inside], correction=0)
    return (layer - mean) * (variance + EPSILON).rsqrt()
