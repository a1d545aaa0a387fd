"""Dropout for networks that run over time: one mask for all the times of a batch (Gal and Ghahramani 2016, section 4).

B batch, T time, D width.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.nn.dropout import drop


class LockedDropout(nn.Module):
    """Drops, in each sequence, the same components at all times."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) to the same, what is left of it scaled up."""
        if not self.training or not self.rate:
            return hidden
        B, _, D = hidden.shape
        return hidden * drop(hidden.new_ones(B, 1, D), self.rate)


class WeightDroppedLSTM(nn.LSTM):
    """One LSTM layer whose hidden-to-hidden matrix is dropped out in training: a mask for each batch, on its entries
    (DropConnect: Merity, Keskar and Socher 2018, section 2) or, with `units`, on its columns.

    A dropped column is a unit of h_{t−1} that no gate sees at any time: Gal and Ghahramani's recurrent dropout, with
    one mask for all rows of the batch, so that the fused kernels can run it. The parameter stays the whole matrix.
    """

    def __init__(self, d_input: int, d_hidden: int, rate: float, units: bool = False):
        super().__init__(d_input, d_hidden, batch_first=True)
        self.rate, self.units = rate, units

    def forward(self, inputs: Tensor, state: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # type: ignore[override]
        """(B, T, d_input) and the state before to (B, T, d_hidden) and the state after, (h, c) of (1, B, d_hidden)."""
        if not self.training or not self.rate:
            return super().forward(inputs, state)
        to_gates, recurrent, *biases = self.all_weights[0]
        mask = drop(recurrent.new_ones(1 if self.units else 4 * self.hidden_size, self.hidden_size), self.rate)
        if state is None:
            zeros = inputs.new_zeros(1, len(inputs), self.hidden_size)
            state = zeros, zeros
        # What nn.LSTM calls, which itself takes no weights but its parameters.
        weights = [to_gates, recurrent * mask, *biases]
        output, h, c = torch.lstm(inputs, state, weights, True, 1, 0.0, True, False, True)
        return output, (h, c)
