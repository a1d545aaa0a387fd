"""Dropout for networks that run over time: one mask for all the times of a batch (Gal and Ghahramani 2016, section 4).

B batch, T time, D width.
"""

from collections.abc import Callable
from typing import NamedTuple

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


class Cell(NamedTuple):
    mode: str  # what nn.RNNBase calls it
    run: Callable[..., tuple[Tensor, ...]]  # what its class in torch.nn calls, which takes no weights but its own
    parts: int  # of its state


CELLS = {
    "elman": Cell("RNN_TANH", torch.rnn_tanh, 1),
    "gru": Cell("GRU", torch.gru, 1),
    "lstm": Cell("LSTM", torch.lstm, 2),
}


class WeightDropped(nn.RNNBase):
    """One recurrent layer whose hidden-to-hidden matrix is dropped out in training: a mask for each batch, on its
    entries (DropConnect: Merity, Keskar and Socher 2018, section 2) or, with `units`, on its columns.

    A dropped column is a unit of h_{t−1} that no gate sees at any time: Gal and Ghahramani's recurrent dropout, with
    one mask for all rows of the batch, so that the fused kernels can run it. The parameter stays the whole matrix.
    """

    def __init__(self, cell: str, d_input: int, d_hidden: int, rate: float, units: bool = False):
        super().__init__(CELLS[cell].mode, d_input, d_hidden, batch_first=True)
        self.cell, self.rate, self.units = CELLS[cell], rate, units

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, T, d_input) and the state before to (B, T, d_hidden) and the state after: h of (1, B, d_hidden), and for
        the LSTM c."""
        weights: list[Tensor] = list(self.all_weights[0])
        recurrent = weights[1]
        if self.training and self.rate:
            mask = drop(recurrent.new_ones(1 if self.units else len(recurrent), self.hidden_size), self.rate)
            weights[1] = recurrent * mask
        if state is None:
            state = (inputs.new_zeros(1, len(inputs), self.hidden_size),) * self.cell.parts
        before = state if len(state) > 1 else state[0]
        output, *after = self.cell.run(inputs, before, weights, True, 1, 0.0, self.training, False, True)
        return output, tuple(after)
