"""An LSTM layer without a forget gate, as in Lample et al. 2016, arXiv 1603.01360, section 2.1.

A cell keeps the share 1 − i of its value, where i is the input gate. Both gates read all cells through a matrix:

    i = σ(W_xi x + W_hi h + W_ci c + b_i),  c′ = (1 − i) ⊙ c + i ⊙ tanh(W_xc x + W_hc h + b_c),
    o = σ(W_xo x + W_ho h + W_co c′ + b_o),  h′ = o ⊙ tanh(c′).

B batch, T time, N width of the input, D d_model.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CoupledLSTM(nn.Module):
    """An LSTM layer that maps (B, T, N) to (B, T, D), from left to right.

    As in the authors' code (glample/tagger), the states before the first step are trained, and are 0 before training.
    Initial weights are uniform with the variance 2 / (rows + columns) for each matrix, and biases are 0.
    """

    def __init__(self, d_input: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3 * d_model, d_input))  # of the input gate, new cell and output gate
        self.recurrent = nn.Parameter(torch.empty(3 * d_model, d_model))
        self.from_cells = nn.Parameter(torch.empty(2 * d_model, d_model))  # to the input gate and the output gate
        self.bias = nn.Parameter(torch.zeros(3 * d_model))
        self.first = nn.Parameter(torch.zeros(2, d_model))  # the hidden state and the cells before the first step
        for matrices in (self.weight, self.recurrent, self.from_cells):
            for matrix in matrices.data.split(d_model):
                nn.init.xavier_uniform_(matrix)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of inputs (B, T, N)."""
        to_input, to_output = self.from_cells.mT.chunk(2, dim=1)
        read = F.linear(inputs, self.weight, self.bias).unbind(1)  # for each step, (B, 3D)
        h, c = self.first[:, None].expand(-1, len(inputs), -1)
        hidden = []
        for step in read:
            i, z, o = torch.addmm(step, h, self.recurrent.T).chunk(3, dim=1)
            i = torch.sigmoid(torch.addmm(i, c, to_input))
            c = (1 - i) * c + i * torch.tanh(z)
            h = torch.sigmoid(torch.addmm(o, c, to_output)) * torch.tanh(c)
            hidden.append(h)
        return torch.stack(hidden, dim=1)
