"""The gated convolutional language model (Dauphin, Fan, Auli and Grangier 2017).

arXiv 1612.08083, section 2. A layer is h(X) = (X ∗ W + b) ⊗ σ(X ∗ V + c) (equation 1); its convolutions do not see
later words. Each block of layers has a residual link, and convolutions have weight normalisation (Salimans and Kingma
2016). Two details follow the authors' later paper (Gehring et al. 2017, sections 3.4 and 3.5). Residual sums are scaled
by √½, and initial weights are scaled so that each layer keeps the variance of its input.

B batch, T time, C input channels, D output channels (of the last layer: d_model), k kernel width.

System C6 of docs/systems.yaml.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from retable.core.settings import PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout


class GatedLayer(nn.Module):
    """A causal convolution of width `k` with a gated linear unit; dropout acts on the convolution's input."""

    def __init__(self, d_in: int, d_out: int, k: int, dropout: float):
        super().__init__()
        # Gates are initially about ½, which divides the variance of outputs by 4. Initial weights with 4 times the
        # usual variance compensate for this division.
        self.convolution = _convolution(d_in, 2 * d_out, k, variance=4 * (1 - dropout))
        self.dropout = Dropout(dropout)
        self.before = k - 1

    def forward(self, x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, D, T) of inputs (B, C, T), and the last k − 1 inputs as the state for the next call.

        The state (1, B, C, k − 1) contains the last inputs before `x`; None means zeros.
        """
        x = self.dropout(x)
        x = F.pad(x, (self.before, 0)) if state is None else torch.cat([state[0], x], dim=2)
        # The state is a copy; a view would keep all inputs in memory.
        return F.glu(self.convolution(x), dim=1), x[None, ..., x.shape[2] - self.before :].clone()


class ResidualBlock(nn.Module):
    """Layers with one residual link around all; the link is a projection if the number of channels changes."""

    def __init__(self, d_in: int, layers: Sequence[tuple[int, int]], dropout: float):
        super().__init__()
        widths = [d_in, *(d_out for _, d_out in layers)]
        self.layers = nn.ModuleList(
            GatedLayer(d, d_out, k, dropout) for d, (k, d_out) in zip(widths[:-1], layers, strict=True)
        )
        same = d_in == widths[-1]
        self.link = nn.Identity() if same else _convolution(d_in, widths[-1], k=1, variance=1.0)

    def forward(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the outputs (B, D, T) of inputs (B, C, T), and the state for the next call.

        The state None means zeros.
        """
        below, after = self.link(x), []
        for layer, before in zip(self.layers, state or [None] * len(self.layers), strict=True):
            x, end = layer(x, before)
            after.append(end)
        return (x + below) * 0.5**0.5, tuple(after)


class GatedConvolution(LeftToRight):
    """A left-to-right model in which a hidden state depends on the tokens within the joint span of all layers.

    `blocks` lists the layers of each block as [k, D], as in the paper's table 1. In a bottleneck block, a wide layer
    follows narrow layers with k = 1.

    Args:
        dropout: rate on the input of each layer.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        blocks: Sequence[Sequence[tuple[PositiveInt, PositiveInt]]],
        dropout: Rate,
    ):
        super().__init__()
        widths = [d_embedding, *(layers[-1][1] for layers in blocks)]
        self.d_model = widths[-1]
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.blocks = nn.ModuleList(
            ResidualBlock(d, layers, dropout) for d, layers in zip(widths[:-1], blocks, strict=True)
        )
        self.dropout = Dropout(dropout)
        self.initialise(self.embedding)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Draw embeddings from N(0, 0.1²), the head's weights from N(0, 1 / number of inputs), with zero biases."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state contains, for each layer of each block, its last inputs (1, B, C, k − 1), with which the layer's next
        window begins.
        """
        x, after = self.embedding(input_ids).transpose(1, 2), []
        for block, before in zip(self.blocks, state or [None] * len(self.blocks), strict=True):
            x, end = block(x, before)
            after.append(end)
        return self.dropout(x.transpose(1, 2)), tuple(after)


def _convolution(d_in: int, d_out: int, k: int, variance: float) -> nn.Module:
    """Create a weight-normalised convolution whose outputs have `variance` times the variance of its inputs."""
    convolution = nn.Conv1d(d_in, d_out, k)
    nn.init.normal_(convolution.weight, std=(variance / (k * d_in)) ** 0.5)
    nn.init.zeros_(convolution.get_parameter("bias"))
    return weight_norm(convolution)
