"""LSTM layers that read a sequence from both ends (Graves and Schmidhuber 2005).

B batch, T time, N width of the input, D width of the output.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BidirectionalLSTM(nn.LSTM):
    """Half of the D units read forward, half backward. Dropout acts between layers."""

    def __init__(self, d_input: int, d_output: int, n_layers: int = 1, dropout: float = 0.0):
        if d_output % 2:
            raise ValueError(f"a width of {d_output} must be even: half of it goes to each direction")
        between = dropout if n_layers > 1 else 0.0
        super().__init__(d_input, d_output // 2, n_layers, batch_first=True, bidirectional=True, dropout=between)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        """(B, T, N), padded behind each row's length, to (B, T, D), zero on padding."""
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(super().forward(packed)[0], batch_first=True, total_length=inputs.shape[1])
        return hidden
