"""C3, C4, C4p: stacked recurrent language models.

`Elman` is the simple recurrent network h_t = tanh(W x_t + U h_{t−1} + b) (Elman 1990; Mikolov et al. 2010), `GRU` that
of Cho et al. (2014), `LSTM` the model of Zaremba, Sutskever and Vinyals (2014, arXiv 1409.2329): Hochreiter and
Schmidhuber's cell without peepholes, dropout on the non-recurrent connections alone (section 3.1), from embedding to
first layer, between layers, and from last layer to softmax. The forget gate's bias starts like any other. A gate's bias
is the sum of two vectors, as in the authors' code, one beside each of its two matrices.

B batch, T time, D d_model.
"""

from typing import Any

from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn import lstm
from retable.nn.dropout import Dropout


class Recurrent(LeftToRight):
    """Token ids to hidden states, left to right; `init_range` is the bound of the uniform initialisation."""

    def __init__(
        self, layers: nn.RNNBase, vocab_size: int, d_embedding: int, d_model: int, dropout: float, init_range: float
    ):
        super().__init__()
        self.d_model, self.init_range = d_model, init_range
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.dropout = Dropout(dropout)
        self.layers = layers
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Uniform weights and biases; also for the softmax layer that an objective puts on top."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them.

        The state: hidden (n_layers, B, D), for the LSTM a pair of hidden and cell.
        """
        hidden, state = self.layers(self.dropout(self.embedding(input_ids)), state)
        return self.dropout(hidden), state


class Elman(Recurrent):
    """The simple recurrent network."""

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        init_range: NonNegative,
    ):
        layers = nn.RNN(d_model, d_model, n_layers, batch_first=True, dropout=_between(dropout, n_layers))
        super().__init__(layers, vocab_size, d_model, d_model, dropout, init_range)


class GRU(Recurrent):
    """Gated recurrent units; the reset gate acts on U h + b, as in cuDNN, not on h."""

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        init_range: NonNegative,
    ):
        layers = nn.GRU(d_model, d_model, n_layers, batch_first=True, dropout=_between(dropout, n_layers))
        super().__init__(layers, vocab_size, d_model, d_model, dropout, init_range)


class LSTM(Recurrent):
    """Long short-term memory; `d_cell` makes cells wider than the `d_model` states that a matrix projects them to
    (LSTMP: Sak, Senior and Beaufays 2014, section 2.2)."""

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        init_range: NonNegative,
        d_cell: PositiveInt | None = None,
    ):
        d_cell, d_projection = (d_model, 0) if d_cell is None else (d_cell, d_model)
        layers = lstm.LSTM(
            d_model, d_cell, n_layers, batch_first=True, dropout=_between(dropout, n_layers), proj_size=d_projection
        )
        super().__init__(layers, vocab_size, d_model, d_model, dropout, init_range)


def _between(dropout: float, n_layers: int) -> float:
    return dropout if n_layers > 1 else 0.0  # torch warns of a dropout that has no place
