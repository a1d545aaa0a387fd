"""The bidirectional LSTM sentence encoder (Graves and Schmidhuber 2005; GLUE's baseline, Wang et al. 2018, section 5).

B batch, T time, D d_model.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiLSTM(nn.Module):
    """Token ids to hidden states that have read the whole sentence: each position sees both sides."""

    direction = "both"

    def __init__(self, vocab_size: int, d_embedding: int, d_model: int, n_layers: int, dropout: float):
        super().__init__()
        if d_model % 2:
            raise ValueError(f"d_model={d_model} must be even: half of it goes to each direction")
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.dropout = nn.Dropout(dropout)
        between = dropout if n_layers > 1 else 0.0
        self.layers = nn.LSTM(
            d_embedding, d_model // 2, n_layers, batch_first=True, bidirectional=True, dropout=between
        )

    def initialise(self, module: nn.Module) -> None:
        """PyTorch's own initialisation stands."""

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) ids, padded behind each row's length, to (B, T, D) hidden states, zero on padding."""
        embedded = self.dropout(self.embedding(input_ids))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.layers(packed)[0], batch_first=True, total_length=input_ids.shape[1])
        return self.dropout(hidden)
