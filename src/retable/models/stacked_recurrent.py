"""Recurrent language models with optional residual links, layer norms and other variations.

Cells are Elman cells, GRUs or LSTMs, as in models/recurrent.py. All options can be combined:
- Residual links around each layer except the first, h_{l+1} = h_l + Layer(h_l). Through these links a gradient reaches
  the lowest layer without passing the other layers (He et al. 2016, and for LSTMs Wu et al. 2016, section 3.2).
- Layer normalisation (Ba, Kiros and Hinton 2016) of the last layer's output, and of the input of each layer except the
  first. As in pre-norm Transformers, residual sums are not normalised.
- Variational dropout, with one mask for all time steps (Gal and Ghahramani 2016).
- A learnt initial state.

B batch, T time, D d_model, L n_layers.

System C4r of docs/systems.yaml.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout
from retable.nn.one_hot import OneHot
from retable.nn.variational import CELLS, LockedDropout, WeightDropped


class StackedRecurrent(LeftToRight):
    """A left-to-right model of recurrent layers.

    Args:
        init_range: bound of the uniform initial weights, except those of the initial state and of the norms.
        dropout: rate on the non-recurrent connections: from the embedding to the first layer, between layers, and from
            the last layer to the softmax.
        variational: whether to use one dropout mask for all time steps.
        recurrent_dropout: rate on units of h_{t−1}; the same units are dropped at all time steps.
        first_state: whether to train the state before the first token, which starts at 0. If `first_state` is false,
            the state before the first token is always 0.
        one_hot: whether the first layer reads one-hot vectors of words instead of trained vectors.
    """

    embedding: nn.Embedding | OneHot
    first: nn.Parameter | None

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        init_range: NonNegative,
        residual: bool,
        layer_norm: bool,
        cell: Literal["elman", "gru", "lstm"] = "lstm",
        dropout: Rate = 0.0,
        variational: bool = False,
        recurrent_dropout: Rate = 0.0,
        first_state: bool = False,
        one_hot: bool = False,
    ):
        super().__init__()
        if cell not in CELLS:
            raise UsageError(f"cell={cell} is not an option of a recurrent stack; write one of {', '.join(CELLS)}")
        self.d_model, self.init_range, self.residual = d_model, init_range, residual
        self.embedding = OneHot(vocab_size) if one_hot else nn.Embedding(vocab_size, d_model)
        widths = [vocab_size if one_hot else d_model, *[d_model] * (n_layers - 1)]
        self.layers = nn.ModuleList(WeightDropped(cell, d, d_model, recurrent_dropout, units=True) for d in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) if layer_norm else nn.Identity() for _ in range(n_layers))
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)
        self.apply(self.initialise)
        parts = CELLS[cell].parts
        self.first = nn.Parameter(torch.zeros(parts, n_layers, d_model)) if first_state else None

    def initialise(self, module: nn.Module) -> None:
        """Draw uniform weights and biases, also for the objective's softmax layer."""
        if not isinstance(module, nn.LayerNorm):
            for parameter in module.parameters(recurse=False):
                nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state is a tuple: hidden states (L, B, D) and, for the LSTM, cell states (L, B, D).
        """
        if self.first is not None:
            state = self._begun(self.first[:, :, None].expand(-1, -1, len(input_ids), -1), state)
        hidden, after = self.embedding(input_ids), []
        for i, layer in enumerate(self.layers):
            below = self.norms[i - 1](hidden) if i else hidden
            before = None if state is None else tuple(part[i : i + 1] for part in state)
            above, end = layer(self.dropout(below), before)
            hidden = hidden + above if self.residual and i else above
            after.append(end)
        return self.dropout(self.norms[-1](hidden)), tuple(map(torch.cat, zip(*after, strict=True)))

    @staticmethod
    def _begun(first: Tensor, state: Any) -> tuple[Tensor, ...]:
        """Return `state`, or before the first token the trained state `first` (parts, L, B, D).

        0 · `first` is added to later states, because distributed training waits for the gradient of every parameter at
        each step.
        """
        if state is None:
            return tuple(part.contiguous() for part in first)
        return tuple(part + 0 * start for part, start in zip(state, first, strict=True))
