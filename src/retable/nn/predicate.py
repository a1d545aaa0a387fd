"""An input vector that marks a sentence's predicate (He et al. 2017, "Deep Semantic Role Labeling", section 2.2).

B batch, T time, P d_predicate.
"""

import torch
from torch import Tensor, nn


class PredicateIndicator(nn.Module):
    """An embedding with two vectors: one for the predicate, and one for all other words."""

    def __init__(self, d_predicate: int):
        super().__init__()
        self.embedding = nn.Embedding(2, d_predicate)

    def forward(self, predicates: Tensor, length: int) -> Tensor:
        """Map each sentence's predicate position, (B,), to vectors (B, T, P); T is `length`."""
        marks = torch.arange(length, device=predicates.device) == predicates[:, None]
        vectors: Tensor = self.embedding(marks.long())
        return vectors
