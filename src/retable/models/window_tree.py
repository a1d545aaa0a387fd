"""A language model that joins the last N tokens of a line in one layer, or in a tree of layers.

Each layer concatenates `join` neighbouring states and applies a linear map and tanh, until one state is left. With join
= N there is one layer, and the model is the same as models/fixed_window.py without direct connections (Bengio et al.
2003, section 2, where tokens are words). With join = 2, the state of the last position is computed by the same tree as
in a stack of dilated convolutions (van den Oord et al. 2016, arXiv 1609.03499, figure 3).

A context contains only the current line: all tokens before the last line end are replaced by line ends. Batch
normalisation (Ioffe and Szegedy 2015) is optional; it precedes each tanh and replaces the layer's bias.

B batch, T time, N context, J join, P positions of a layer, E embedding, D d_model.
"""

from math import sqrt

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.batch_norm import BatchNorm
from retable.nn.dropout import Dropout


class WindowTree(LeftToRight):
    """A left-to-right model; a state depends on the last `context` tokens of its line.

    Args:
        boundary: the id of the line end.
        join: number of neighbouring states that each layer concatenates; `context` must be a power of `join`.
        hidden_std, hidden_bias_std, head_std, head_bias_std: standard deviations of the initial weights, which are
            normally distributed; for embeddings, the standard deviation is 1. hidden_std=None means 1 / √n for a layer
            with n inputs.
        momentum: weight of a batch in the running averages of batch normalisation; None switches batch normalisation
            off.
        by_position: whether batch normalisation has separate statistics for each position of a layer.
        dropout: rate on embeddings and hidden layers.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        boundary: int,
        context: PositiveInt,
        join: PositiveInt,
        d_embedding: PositiveInt,
        d_hidden: PositiveInt,
        hidden_std: NonNegative | None,
        hidden_bias_std: NonNegative,
        head_std: NonNegative,
        head_bias_std: NonNegative,
        momentum: Rate | None = None,
        by_position: bool = False,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.boundary, self.context, self.join, self.d_model = boundary, context, join, d_hidden
        self._head_std = head_std, head_bias_std
        self.embedding = nn.Embedding(vocab_size, d_embedding)  # torch draws weights from N(0, 1)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        self.dropout = Dropout(dropout)
        width, positions = d_embedding, context
        while positions > 1 or not len(self.layers):
            if positions % join or join == 1 < positions:
                raise ValueError(
                    f"context={context} is not a power of join={join}; write join={context}, "
                    "or set context to a power of join"
                )
            positions //= join
            layer = nn.Linear(join * width, d_hidden, bias=momentum is None)
            nn.init.normal_(layer.weight, std=1 / sqrt(join * width) if hidden_std is None else hidden_std)
            if layer.bias is not None:
                nn.init.normal_(layer.bias, std=hidden_bias_std)
            self.layers.append(layer)
            if momentum is not None:
                self.norms.append(BatchNorm(d_hidden, momentum, positions if by_position else 1))
            width = d_hidden

    def initialise(self, module: nn.Module) -> None:
        """Draw the weights and the bias of the objective's softmax layer."""
        for parameter, std in zip(module.parameters(recurse=False), self._head_std, strict=False):
            nn.init.normal_(parameter, std=std)

    def forward(self, input_ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state contains the last N − 1 ids, (1, B, N − 1), with which the next window begins.
        """
        before = input_ids.new_full((len(input_ids), self.context - 1), self.boundary) if state is None else state[0]
        ids = torch.cat([before, input_ids], dim=1)
        hidden = self.dropout(self.embedding(self._within_lines(ids.unfold(1, self.context, 1))))  # (B, T, N, E)
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden.unflatten(2, (-1, self.join)).flatten(3))  # (B, T, P, J·D) to (B, T, P, D)
            hidden = self.dropout((self.norms[number](hidden) if self.norms else hidden).tanh())
        return hidden.flatten(2), ids[None, :, input_ids.shape[1] :]

    def _within_lines(self, windows: Tensor) -> Tensor:
        """Replace all ids before the last line end of each window by line ends, for windows of ids (B, T, N)."""
        ends = (windows == self.boundary).flip(2).cumsum(2).flip(2)
        return windows.masked_fill(ends > 0, self.boundary)
