"""The deep averaging network as published: Iyyer et al. (2015), "Deep Unordered Composition Rivals Syntactic Methods".

A sentence is the mean of its word vectors (section 2.1), followed by ReLU layers (section 3). In training each word is
dropped with some probability before the mean (section 3.1). All weights are initialised as in the authors' code
(miyyer/dan). As in the authors' code, a sentence keeps all its words if dropout would remove all of them. The variant
in models/bag_of_words.py is the one that is compared with the other sentence encoders.

Departure: the gradient of a word that occurs twice in a sentence counts twice; in the authors' code it counts once.

B batch, T time, D d_model.

System B1 of docs/systems.yaml.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import SequenceEncoder

INIT_RANGE = 0.08  # bound of the uniform initial weights and biases


class DAN(SequenceEncoder):
    """An encoder with `n_layers` ReLU layers over the mean word vector; with 0 layers, the neural bag of words.

    Args:
        word_dropout: share of words that training leaves out of the mean.
        dropout: share of hidden units that training drops; 0 in the authors' code.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: NonNegativeInt,
        word_dropout: Rate,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model, self.word_dropout = d_model, word_dropout
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU(), nn.Dropout(dropout)) for _ in range(n_layers))
        )
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw weights and biases of an embedding or a layer, also of the objective's softmax."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -INIT_RANGE, INIT_RANGE)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode ids (B, T), padded after each row's length, as one vector per sequence, (B, D).

        The first and the last token of a row are start and end marks, which are not in the mean.
        """
        words = input_ids[:, 1:]
        kept = torch.arange(words.shape[1], device=words.device) < lengths[:, None] - 2
        if self.training:
            kept = drop_words(kept, self.word_dropout)
        total = (self.embedding(words) * kept[:, :, None]).sum(dim=1)
        return self.layers(total / kept.sum(dim=1, keepdim=True).clamp(min=1))


def drop_words(words: Tensor, rate: float) -> Tensor:
    """Set each True of a mask (B, T) to False with probability `rate`, unless no True would be left in its row."""
    kept = words & (torch.rand(words.shape, device=words.device) >= rate)
    return kept.where(kept.any(dim=1, keepdim=True), words)
