"""C4: the stacked LSTM language model of Zaremba, Sutskever and Vinyals (2014, arXiv 1409.2329).

Hochreiter and Schmidhuber's cell without peepholes, dropout on the non-recurrent connections alone (section 3.1):
embedding to first layer, between layers, and last layer to softmax. The forget gate's bias starts like any other.
A gate's bias is the sum of two vectors, as in the authors' code, one beside each of its two matrices.

B batch, T time, D d_model.
"""

from torch import Tensor, nn

LSTMState = tuple[Tensor, Tensor]  # hidden and cell, each (n_layers, B, D)


class LSTM(nn.Module):
    """Token ids to hidden states, left to right; `init_range` is the bound of the uniform initialisation."""

    direction = "left-to-right"

    def __init__(self, vocab_size: int, d_model: int, n_layers: int, dropout: float, init_range: float):
        super().__init__()
        self.d_model, self.init_range = d_model, init_range
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = nn.Dropout(dropout)
        between = dropout if n_layers > 1 else 0.0
        self.layers = nn.LSTM(d_model, d_model, n_layers, batch_first=True, dropout=between)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Uniform weights and biases; also for the softmax layer that an objective puts on top."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them."""
        hidden, state = self.layers(self.dropout(self.embedding(input_ids)), state)
        return self.dropout(hidden), state
