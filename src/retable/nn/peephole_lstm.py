"""An LSTM layer with peepholes: the gates also read the memory cells (Graves and Schmidhuber 2005).

PyTorch's LSTM has no peepholes.

B batch, T time, N width of the input, D d_model.
"""

import torch
from torch import Tensor, nn


class PeepholeLSTM(nn.Module):
    """An LSTM layer that maps (B, T, N) to (B, T, D), from left to right, with states of 0 before the first step.

    The input and forget gates read the cells of the previous step, and the output gate reads those of the same step.
    Each gate reads only its own cell, so the weights from cells to gates are vectors. The initial weights are uniform
    in ±1/√D, as in PyTorch's LSTM.
    """

    def __init__(self, d_input: int, d_model: int):
        super().__init__()
        self.input = nn.Linear(d_input, 4 * d_model)  # of the input gate, forget gate, new cell and output gate
        self.recurrent = nn.Parameter(torch.empty(4 * d_model, d_model))
        self.peepholes = nn.Parameter(torch.empty(3, d_model))  # of the input, forget and output gates
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d_model**-0.5), d_model**-0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of inputs (B, T, N)."""
        of_input, of_forget, of_output = self.peepholes
        read = self.input(inputs).unbind(1)  # for each step, (B, 4D)
        h = c = inputs.new_zeros(len(inputs), self.peepholes.shape[1])
        hidden = []
        for step in read:
            i, f, z, o = torch.addmm(step, h, self.recurrent.T).chunk(4, dim=1)
            c = torch.sigmoid(f + of_forget * c) * c + torch.sigmoid(i + of_input * c) * torch.tanh(z)
            h = torch.sigmoid(o + of_output * c) * torch.tanh(c)
            hidden.append(h)
        return torch.stack(hidden, dim=1)
