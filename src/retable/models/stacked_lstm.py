"""C4r: LSTM layers one by one, with residual links, layer normalisation and variational dropout, in any combination.

Residual links go round each layer but the first, h_{l+1} = h_l + LSTM(h_l), so that a gradient reaches the lowest layer
past all the others (He et al. 2016; for LSTMs Wu et al. 2016, section 3.2). Layer normalisation (Ba, Kiros and Hinton
2016) stands between layers, on the input of each but the first, and on the output of the last; the residual sums stay
outside it, as in pre-norm Transformers. Variational dropout keeps one mask for all times (Gal and Ghahramani 2016).

B batch, T time, D d_model, L n_layers.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout
from retable.nn.variational import LockedDropout, WeightDroppedLSTM
from retable.settings import NonNegative, PositiveInt, Rate


class StackedLSTM(LeftToRight):
    """Token ids to hidden states, left to right.

    `dropout` acts on the non-recurrent connections: from embedding to first layer, between layers, and from last layer
    to softmax; with `variational` its masks hold for all times. `recurrent_dropout` drops units of h_{t−1}, the same at
    all times. `init_range` is the bound of the uniform initialisation, of all but the norms.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        init_range: NonNegative,
        residual: bool,
        layer_norm: bool,
        dropout: Rate = 0.0,
        variational: bool = False,
        recurrent_dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model, self.init_range, self.residual = d_model, init_range, residual
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(
            WeightDroppedLSTM(d_model, d_model, recurrent_dropout, units=True) for _ in range(n_layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) if layer_norm else nn.Identity() for _ in range(n_layers))
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Uniform weights and biases; also for the softmax layer that an objective puts on top."""
        if not isinstance(module, nn.LayerNorm):
            for parameter in module.parameters(recurse=False):
                nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them.

        The state is that of the LSTM in models/recurrent.py: hidden and cell, each (L, B, D).
        """
        hidden, after = self.embedding(input_ids), []
        for i, layer in enumerate(self.layers):
            below = self.norms[i - 1](hidden) if i else hidden
            before = None if state is None else (state[0][i : i + 1], state[1][i : i + 1])
            above, end = layer(self.dropout(below), before)
            hidden = hidden + above if self.residual and i else above
            after.append(end)
        h, c = zip(*after, strict=True)
        return self.dropout(self.norms[-1](hidden)), (torch.cat(h), torch.cat(c))
