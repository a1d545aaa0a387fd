"""Attention of a recurrent decoder: how well each of its states goes with each state of the encoder.

B batch, S time of the encoder, U time of the decoder, Q width of the decoder's states, M of the encoder's.
"""

import torch
from torch import Tensor, nn


class BilinearAttention(nn.Module):
    """sᵀ W h of a decoder's state s and an encoder's h ("general" in Luong, Pham and Manning 2015, section 3.1)."""

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.weight = nn.Linear(d_memory, d_query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(B, S, M) to (B, S, Q), once for all of the decoder's steps."""
        return self.weight(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """(B, U, Q) decoder states to the shares (B, U, S) that they give to the states where `mask` (B, S) is True."""
        return _shares(queries @ keys.mT, mask)


class AdditiveAttention(nn.Module):
    """vᵀ tanh(W s + U h + b) (Bahdanau, Cho and Bengio 2015, appendix A.1.2), with Q hidden units."""

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.query = nn.Linear(d_query, d_query, bias=False)
        self.memory = nn.Linear(d_memory, d_query)
        self.score = nn.Linear(d_query, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """(B, S, M) to (B, S, Q), once for all of the decoder's steps."""
        return self.memory(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """As of BilinearAttention; makes (B, U, S, Q) numbers on the way."""
        hidden = (self.query(queries)[:, :, None] + keys[:, None]).tanh()
        return _shares(self.score(hidden)[..., 0], mask)


def _shares(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=2)
