"""One-hot input: a word's place in the vocabulary as a vector.

The product of a layer with it is a column of the layer's weights. So the layer acts as an embedding table of its width;
with a learnt table below, the weights would be a product of two matrices. It takes V numbers of memory per token.

B batch, T time, V vocabulary.

System B0 of docs/systems.yaml.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class OneHot(nn.Module):
    """A replacement for a model's embedding that has no weights. A softmax cannot share it."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (B, T) to (B, T, V): 1 at the id, 0 elsewhere."""
        return F.one_hot(input_ids, self.vocab_size).float()
