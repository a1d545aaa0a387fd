"""The bidirectional LSTM sentence encoder (Graves and Schmidhuber 2005; GLUE's baseline, Wang et al. 2018, section 5).

B batch, T time, D d_model.
"""

from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.dropout import Dropout


class BiLSTM(Encoder):
    """An encoder with hidden states that concatenate a forward and a backward LSTM's states, D/2 each.

    Args:
        d_model: width of the states of both directions together.
        dropout: rate on the LSTM's input, between its layers, and on its output.
    """

    two_ends = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.dropout = Dropout(dropout)
        self.layers = BidirectionalLSTM(d_embedding, d_model, n_layers, dropout)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length."""
        return self.dropout(self.layers(self.dropout(self.embedding(input_ids)), lengths))
