"""Attention of a recurrent decoder to the states of an encoder.

B batch, S time of the encoder, U time of the decoder, Q width of the decoder's states, M width of the encoder's states.
"""

import torch
from torch import Tensor, nn


class BilinearAttention(nn.Module):
    """Attention with the score sᵀ W h of decoder states s and encoder states h ("general" in Luong et al. 2015, 3.1).

    Args:
        d_query, d_memory: widths of decoder and encoder states.
    """

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.weight = nn.Linear(d_memory, d_query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Compute keys (B, S, Q) of the encoder's states (B, S, M), once for all steps of the decoder."""
        return self.weight(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) of states (B, U, Q) on keys (B, S, Q), 0 where `mask` (B, S) is False.

        Returns: weights, which sum to 1 over S.
        """
        return _shares(queries @ keys.mT, mask)


class AdditiveAttention(nn.Module):
    """Attention with the score vᵀ tanh(W s + U h + b) and Q hidden units (Bahdanau et al. 2015, appendix A.1.2).

    Args:
        d_query, d_memory: widths of decoder and encoder states; Q = d_query.
    """

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.query = nn.Linear(d_query, d_query, bias=False)
        self.memory = nn.Linear(d_memory, d_query)
        self.score = nn.Linear(d_query, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Compute keys (B, S, Q) of the encoder's states (B, S, M), once for all steps of the decoder."""
        return self.memory(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) as in BilinearAttention, but store (B, U, S, Q) numbers on the way.

        Returns: weights, which sum to 1 over S.
        """
        hidden = (self.query(queries)[:, :, None] + keys[:, None]).tanh()
        return _shares(self.score(hidden)[..., 0], mask)


def _shares(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=2)
