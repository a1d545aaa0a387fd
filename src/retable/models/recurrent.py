"""Stacked recurrent language models: Elman network, GRU and LSTM.

`Elman` is the simple recurrent network h_t = tanh(W x_t + U h_{t−1} + b) (Elman 1990; Mikolov et al. 2010). `GRU` is
the gated recurrent unit of Cho et al. (2014). `LSTM` is the model of Zaremba, Sutskever and Vinyals (2014, arXiv
1409.2329), with Hochreiter and Schmidhuber's cell without peepholes. Dropout acts only on non-recurrent connections
(section 3.1): from the embedding to the first layer, between layers, and from the last layer to the softmax. The forget
gate's bias is initialised like any other bias. As in the authors' code, a gate's bias is the sum of two vectors: one
for the input's matrix, one for the state's.

B batch, T time, D d_model.

Systems C3, C4 and C4p of docs/systems.yaml.
"""

from typing import Any

from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn import lstm
from retable.nn.dropout import Dropout


class Recurrent(LeftToRight):
    """A left-to-right model with the given recurrent `layers` and uniform initial weights within ±`init_range`.

    Args:
        d_embedding: width of the word vectors.
        d_model: width of the states.
        dropout: rate on non-recurrent connections (Zaremba et al. 2014).
    """

    launch_bound = True

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
        """Draw uniform weights and biases, also for the objective's softmax layer."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state contains the hidden states (n_layers, B, D). For the LSTM, the state is a pair: hidden states and cell
        states.
        """
        hidden, state = self.layers(self.dropout(self.embedding(input_ids)), state)
        return self.dropout(hidden), state


class Elman(Recurrent):
    """A simple recurrent network, with tanh.

    Args:
        d_model: width of word vectors and states.
        init_range: bound of the uniform initial weights.
    """

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
    """A network of gated recurrent units; as in cuDNN, the reset gate multiplies U h + b, not h.

    Args:
        d_model: width of word vectors and states.
        init_range: bound of the uniform initial weights.
    """

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
    """A long short-term memory network.

    If `d_cell` is given, it is the width of the cells, and a matrix projects cells to hidden states of width `d_model`
    (LSTMP: Sak, Senior and Beaufays 2014, section 2.2).

    Args:
        d_model: width of word vectors and states.
        init_range: bound of the uniform initial weights.
    """

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
    return dropout if n_layers > 1 else 0.0  # torch warns about dropout with only one layer
