"""Attention of a recurrent decoder to the states of an encoder.

B batch, S encoder positions, U decoder steps, Q width of the decoder's states, M width of the encoder's states.
"""

import torch
from torch import Tensor, nn


class BilinearAttention(nn.Module):
    """Attention with the score sᵀ W h for decoder state s and encoder state h ("general" in Luong et al. 2015, 3.1).

    Args:
        d_query, d_memory: widths Q of decoder states and M of encoder states.
    """

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.weight = nn.Linear(d_memory, d_query, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Compute keys (B, S, Q) from the encoder's states (B, S, M); the keys serve all steps of the decoder."""
        return self.weight(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) from decoder states (B, U, Q) to keys (B, S, Q).

        Returns: weights that sum to 1 over S, and are 0 where `mask` (B, S) is False.
        """
        return _shares(queries @ keys.mT, mask)


class AdditiveAttention(nn.Module):
    """Attention with the score vᵀ tanh(W s + U h + b), where W s has width Q (Bahdanau et al. 2015, appendix A.1.2).

    Args:
        d_query, d_memory: widths Q of decoder states and M of encoder states.
    """

    def __init__(self, d_query: int, d_memory: int):
        super().__init__()
        self.query = nn.Linear(d_query, d_query, bias=False)
        self.memory = nn.Linear(d_memory, d_query)
        self.score = nn.Linear(d_query, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """Compute keys (B, S, Q) from the encoder's states (B, S, M); the keys serve all steps of the decoder."""
        return self.memory(memory)

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """Return the attention weights (B, U, S), as BilinearAttention does; needs memory for B·U·S·Q numbers.

        Returns: weights that sum to 1 over S, and are 0 where `mask` (B, S) is False.
        """
        hidden = (self.query(queries)[:, :, None] + keys[:, None]).tanh()
        return _shares(self.score(hidden)[..., 0], mask)


def _shares(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=2)
