"""C4r: recurrent layers one by one, with residual links, layer normalisation, variational dropout and a first state
that is learnt, in any combination; their cells are Elman's, GRUs or LSTMs, as in models/recurrent.py.

Residual links go round each layer but the first, h_{l+1} = h_l + Layer(h_l), so that a gradient reaches the lowest
layer past all the others (He et al. 2016; for LSTMs Wu et al. 2016, section 3.2). Layer normalisation (Ba, Kiros and
Hinton 2016) stands between layers, on the input of each but the first, and on the output of the last; the residual sums
stay outside it, as in pre-norm Transformers. Variational dropout keeps one mask for all times (Gal and Ghahramani
2016).

B batch, T time, D d_model, L n_layers.
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
    """Token ids to hidden states, left to right.

    `dropout` acts on the non-recurrent connections: from embedding to first layer, between layers, and from last layer
    to softmax; with `variational` its masks hold for all times. `recurrent_dropout` drops units of h_{t−1}, the same at
    all times. With `first_state` the state before the first token is a parameter, which begins at zero; otherwise it is
    zero. With `one_hot` the first layer reads one-hot words, without a table of vectors below it. `init_range` is the
    bound of the uniform initialisation, of all but the first state and the norms.
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
            raise UsageError(f"a recurrent stack has no cell={cell}; write one of {', '.join(CELLS)}")
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
        """Uniform weights and biases; also for the softmax layer that an objective puts on top."""
        if not isinstance(module, nn.LayerNorm):
            for parameter in module.parameters(recurse=False):
                nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them.

        The state: hidden, and for the LSTM cell, (L, B, D) each.
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
        """The state, or `first` (parts, L, B, D) where there is none yet.

        All states depend on the first, later ones not at all: distributed training waits for its gradient at each step.
        """
        if state is None:
            return tuple(part.contiguous() for part in first)
        return tuple(part + 0 * start for part, start in zip(state, first, strict=True))
