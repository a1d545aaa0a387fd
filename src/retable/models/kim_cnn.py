"""The convolutional network for sentences as published (Kim 2014, arXiv 1408.5882), with random word vectors.

A window of the h words from word i has the feature c_i = relu(w · x_{i:i+h−1} + b), and the sentence has the feature ĉ
= max c_i (section 2, equations 2 to 4). In training, dropout acts on the features z: y = w · (z ∘ r) + b (section 2.1,
equation 5). After training, the paper uses ŵ = p w, where p is the probability that a feature is kept; this module
multiplies z by p instead. `retable.training.optimizers.adadelta` bounds ‖w‖ after each step.

Initial weights and padding are those of the author's code (yoonkim/CNN_sentence). Zero vectors precede and follow the
sentence, so that each word is in the same number of windows. One more window contains only zero vectors, so no feature
is below relu(b). models/convolutional_encoder.py contains the variant that is compared with the other sentence
encoders.

B batch, T time, E d_embedding, F features of all widths.

System F1 of docs/systems.yaml.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate, Sizes
from retable.models.base import SequenceEncoder


class KimCNN(SequenceEncoder):
    """An encoder with `n_features` features for each window width; a feature is a maximum over all windows.

    Args:
        widths: the widths h of the windows.
        feature_dropout: share 1 − p of the features that training drops.
        dropout: share of the elements of word vectors that training drops; 0 in the paper.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        widths: Sizes,
        n_features: PositiveInt,
        feature_dropout: Rate,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.d_model, self.widths, self.kept = len(widths) * n_features, list(widths), 1 - feature_dropout
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        self.dropout = nn.Dropout(dropout)
        filters = [nn.Conv1d(d_embedding, n_features, width) for width in widths]
        for convolve in filters:
            nn.init.uniform_(convolve.weight, -0.01, 0.01)
            nn.init.zeros_(cast(Tensor, convolve.bias))
        self.filters = nn.ModuleList(filters)

    def initialise(self, module: nn.Module) -> None:
        """Set the weights of the objective's softmax to 0."""
        for parameter in module.parameters(recurse=False):
            nn.init.zeros_(parameter)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Encode ids (B, T), padded after each row's length, as one vector per sequence, (B, F).

        The first and the last token of a row are start and end marks, which are not words of the sentence.
        """
        ids = input_ids[:, 1:]
        padding = torch.arange(ids.shape[1], device=ids.device) >= lengths[:, None] - 2
        words = self.dropout(self.embedding(ids)).masked_fill(padding[:, :, None], 0.0).mT  # (B, E, T)
        features = torch.cat(
            [
                convolve(F.pad(words, (width - 1, width))).amax(dim=2)
                for width, convolve in zip(self.widths, self.filters, strict=True)
            ],
            dim=1,
        ).relu()
        if self.training:
            return features * torch.empty_like(features).bernoulli_(self.kept)
        return features * self.kept
