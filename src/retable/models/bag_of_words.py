"""Bags of words for classification: the linear baseline and the deep averaging network.

The deep averaging network is from "Deep Unordered Composition Rivals Syntactic Methods" (Iyyer et al. 2015). Without
hidden layers, the network is the neural bag of words.

B batch, T time, D d_model, V vocabulary.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import SequenceEncoder


class BagOfWords(SequenceEncoder):
    """An encoder that counts each word: the sum of one-hot vectors τ(w).

    A linear head on the sum computes b + a·Σ τ(w).

    dropout: share of words left out in training, as in `DeepAveraging`.
    """

    def __init__(self, vocab_size: PositiveInt, dropout: Rate):
        super().__init__()
        self.d_model = vocab_size
        self.dropout = dropout

    def initialise(self, module: nn.Module) -> None:
        """Set all weights to 0; logistic regression has one optimum, so the initial weights do not matter."""
        for parameter in module.parameters():
            nn.init.zeros_(parameter)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the counts (B, V) of all words in ids (B, T), which are padded after each row's length."""
        kept = _kept(input_ids, lengths, self.dropout if self.training else 0.0)
        return kept.new_zeros(len(input_ids), self.d_model).scatter_add(1, input_ids, kept)


class DeepAveraging(SequenceEncoder):
    """An encoder with `n_layers` tanh layers over the mean word vector; 0 layers give the neural bag of words.

    dropout: share of words left out of the mean in training, the paper's word dropout (section 2.3).
    """

    def __init__(self, vocab_size: PositiveInt, d_model: PositiveInt, n_layers: NonNegativeInt, dropout: Rate):
        super().__init__()
        self.d_model = d_model
        self.dropout = dropout
        self.embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(d_model, d_model), nn.Tanh()) for _ in range(n_layers)),
        )

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode ids (B, T), padded after each row's length, as one vector per sequence, (B, D)."""
        kept = _kept(input_ids, lengths, self.dropout if self.training else 0.0)
        total = (self.embedding(input_ids) * kept[:, :, None]).sum(1)
        return self.layers(total / kept.sum(1, keepdim=True).clamp(min=1))


def _kept(input_ids: Tensor, lengths: Tensor, dropout: float) -> Tensor:
    """Return a mask (B, T): 0.0 for padding and dropped words, 1.0 for all other words."""
    kept = torch.arange(input_ids.shape[1], device=input_ids.device) < lengths[:, None]
    if dropout:
        kept = kept & (torch.rand(kept.shape, device=kept.device) >= dropout)
    return kept.float()
