"""Bags of words: sequences as sets with multiplicity, for classification. The linear baseline, and the neural bag and
deep averaging network of Iyyer et al. (2015), "Deep Unordered Composition Rivals Syntactic Methods".

B batch, T time, D d_model, V vocabulary.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import SequenceEncoder


class BagOfWords(SequenceEncoder):
    """How often each word occurs: Σ τ(w) with one-hot τ. The objective's head makes it f(X) = b + a·Σ τ(w).

    dropout: the share of words left out while it trains, as in `DeepAveraging`.
    """

    def __init__(self, vocab_size: PositiveInt, dropout: Rate):
        super().__init__()
        self.d_model = vocab_size
        self.dropout = dropout

    def initialise(self, module: nn.Module) -> None:
        """From 0: logistic regression has one optimum."""
        for parameter in module.parameters():
            nn.init.zeros_(parameter)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) ids, padded behind each row's length, to counts (B, V)."""
        kept = _kept(input_ids, lengths, self.dropout if self.training else 0.0)
        return kept.new_zeros(len(input_ids), self.d_model).scatter_add(1, input_ids, kept)


class DeepAveraging(SequenceEncoder):
    """The mean of the words' vectors, and `n_layers` layers on it, with tanh; 0 leave the neural bag of words.

    dropout: the share of words left out of the mean while it trains, the paper's word dropout (section 2.3).
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
        """(B, T) ids, padded behind each row's length, to one vector a sequence (B, D)."""
        kept = _kept(input_ids, lengths, self.dropout if self.training else 0.0)
        total = (self.embedding(input_ids) * kept[:, :, None]).sum(1)
        return self.layers(total / kept.sum(1, keepdim=True).clamp(min=1))


def _kept(input_ids: Tensor, lengths: Tensor, dropout: float) -> Tensor:
    """1.0 for the words (B, T) that count, 0.0 for padding and for the share `dropout` of words that is left out."""
    kept = torch.arange(input_ids.shape[1], device=input_ids.device) < lengths[:, None]
    if dropout:
        kept = kept & (torch.rand(kept.shape, device=kept.device) >= dropout)
    return kept.float()
