"""LSTM layers that read a sequence from both ends (Graves and Schmidhuber 2005).

B batch, T time, N width of the input, D width of the output.
"""

import torch
from torch import Tensor, nn

from retable.nn.dropout import Dropout


class BidirectionalLSTM(nn.Module):
    """Half of the D units read forward, half backward, each row from its own last place. Dropout acts between layers.

    The rows are not packed: on a CPU the gradient of packed rows takes time that grows with T squared, for each step's
    is written into zeros for all of them. A batch of 64 sentences of 27 words took 2.5 times as long, 32 of 60 words
    3.3 times.
    """

    def __init__(self, d_input: int, d_output: int, n_layers: int = 1, dropout: float = 0.0):
        super().__init__()
        if d_output % 2:
            raise ValueError(f"a width of {d_output} must be even: half of it goes to each direction")
        widths = [d_input, *[d_output] * (n_layers - 1)]
        lstms = [nn.LSTM(width, d_output // 2, batch_first=True) for width in widths for _ in ("forth", "back")]
        self.forth, self.back = nn.ModuleList(lstms[::2]), nn.ModuleList(lstms[1::2])
        self.dropout = Dropout(dropout)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, N), padded behind each row's length, to (B, T, D), zero on padding."""
        mirror = mirrored(lengths.to(inputs.device), inputs.shape[1])
        hidden = inputs
        for k, (forth, back) in enumerate(zip(self.forth, self.back, strict=True)):
            hidden = self.dropout(hidden) if k else hidden
            backward = taken(back(taken(hidden, mirror))[0], mirror)
            hidden = torch.cat([forth(hidden)[0], backward], dim=-1)
        padding = torch.arange(inputs.shape[1], device=inputs.device) >= lengths.to(inputs.device)[:, None]
        return hidden.masked_fill(padding[:, :, None], 0.0)


def mirrored(lengths: Tensor, length: int) -> Tensor:
    """(B, length): the places of each row of `lengths` (B,) from its last back to its first, then those of its padding.
    They are their own inverse."""
    places, last = torch.arange(length, device=lengths.device), lengths[:, None] - 1
    return torch.where(places <= last, last - places, places)


def taken(states: Tensor, places: Tensor) -> Tensor:
    """Of each row of `states` (B, T, D) those at the row's `places` (B, T)."""
    return states.gather(1, places[:, :, None].expand_as(states))
