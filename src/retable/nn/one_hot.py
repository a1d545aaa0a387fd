"""One-hot input: a word as a vector that is 1 at the word's id and 0 elsewhere.

The product of a weight matrix with a one-hot vector is a column of the matrix. So a layer that reads one-hot input acts
as an embedding table. If an embedding preceded the layer, a word's contribution would be a column of the product of two
matrices. One-hot input needs memory for V numbers per token.

B batch, T time, V vocabulary.

System B0 of docs/systems.yaml.
"""

import torch.nn.functional as F
from torch import Tensor, nn


class OneHot(nn.Module):
    """A replacement for a model's embedding, without weights that a softmax could share."""

    def __init__(self, vocab_size: int):
        super().__init__()
        self.vocab_size = vocab_size

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (B, T) to one-hot vectors (B, T, V): 1 at the id, 0 elsewhere."""
        return F.one_hot(input_ids, self.vocab_size).float()
