"""Dropout for recurrent networks, with one mask for all time steps of a batch.

Gal and Ghahramani 2016, section 4.

B batch, T time, D width.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from retable.nn.dropout import drop


class LockedDropout(nn.Module):
    """Dropout of the same components at all time steps of a sequence."""

    def __init__(self, rate: float):
        super().__init__()
        self.rate = rate

    def forward(self, hidden: Tensor) -> Tensor:
        """Set the dropped components of states (B, T, D) to 0, and scale the other components up."""
        if not self.training or not self.rate:
            return hidden
        B, _, D = hidden.shape
        return hidden * drop(hidden.new_ones(B, 1, D), self.rate)


class Cell(NamedTuple):
    mode: str  # name of the cell in nn.RNNBase
    run: Callable[..., tuple[Tensor, ...]]  # torch's function for this cell; accepts any weights
    parts: int  # number of tensors in the cell's state


CELLS = {
    "elman": Cell("RNN_TANH", torch.rnn_tanh, 1),
    "gru": Cell("GRU", torch.gru, 1),
    "lstm": Cell("LSTM", torch.lstm, 2),
}


class WeightDropped(nn.RNNBase):
    """One recurrent layer with dropout on the hidden-to-hidden matrix. Each batch has a new mask.

    The mask drops single entries of the matrix (DropConnect: Merity, Keskar and Socher 2018, section 2) or, if `units`
    is true, columns. A dropped column hides one unit of h_{t−1} from all gates at all time steps. Dropping columns is
    Gal and Ghahramani's recurrent dropout, except that all rows of a batch share the mask, so that fused kernels can be
    used. The layer's trained parameter is the matrix without dropout.

    Args:
        cell: kind of recurrent layer, a key of CELLS.
        rate: probability of a dropped entry or column.
        units: whether whole columns are dropped.
    """

    def __init__(self, cell: str, d_input: int, d_hidden: int, rate: float, units: bool = False):
        super().__init__(CELLS[cell].mode, d_input, d_hidden, batch_first=True)
        self.cell, self.rate, self.units = CELLS[cell], rate, units

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the states (B, T, d_hidden) of inputs (B, T, d_input) read after `state`, and the state after them.

        The state is a tuple: h (1, B, d_hidden) and, for the LSTM, c of the same shape.
        """
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
