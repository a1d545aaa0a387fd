"""Continuous bag of words (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.1).

R rows, C centres per row, J contexts per row, D d_model, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.models.base import WindowModel


class CBOW(WindowModel):
    """A model in which the mean vector of a window predicts the word in its middle.

    Each of n words in the window receives 1 / n of the mean's gradient. The programs word2vec.c and gensim give each
    word the whole gradient, which is not the gradient of any loss (İrsoy et al. 2021, "Corrected CBOW Performs as well
    as Skip-gram").
    """

    predicts = "centre"

    def __init__(self, words: Sequence[str], d_model: PositiveInt) -> None:
        super().__init__()
        self.d_model = d_model
        self.context = nn.Embedding(len(words), d_model)
        nn.init.uniform_(self.context.weight, -0.5 / d_model, 0.5 / d_model)  # the range of word2vec.c

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the windows' mean vectors (R, C, D), the ids (R, C) to predict, and a mask (R, C, C).

        `centres` (R, C) and `contexts` (R, J) are ids. `pairs` (R, C, J) marks the contexts of each centre. The mask is
        True where a mean vector and an id belong to the same centre, unless that centre has no contexts.
        """
        size = pairs.sum(-1, keepdim=True)  # (R, C, 1)
        vectors = self.context(contexts)  # (R, J, D)
        hidden = (pairs / size.clamp(min=1)).to(vectors.dtype) @ vectors
        return hidden, centres, torch.diag_embed(size.squeeze(-1) > 0)

    def vectors(self) -> Tensor:
        return self.context.weight.detach()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Return the table (V, D), units (V,), offsets (V + 1,) and scales (V,) that `WindowModel.inputs` describes.

        The input vector of word w is row w of the table.
        """
        n = len(self.context.weight)
        return self.context.weight.detach(), np.arange(n, dtype=np.int32), np.arange(n + 1), np.ones(n, np.float32)
