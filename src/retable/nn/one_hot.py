"""B0: one-hot input, a word's place in the vocabulary as a vector.

A layer's product with it is a column of the layer's weights: the layer is an embedding table of its own width, where a
learnt table below it would make a product of two matrices. In memory it is V numbers a token.

B batch, T time, V vocabulary.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class OneHot(nn.Module):
    """In place of a model's embedding; nothing is learnt, and no softmax can share it."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, input_ids: Tensor) -> Tensor:
        """(B, T) ids to (B, T, V): 1 at the id, 0 elsewhere."""
        return F.one_hot(input_ids, self.vocab_size).float()
