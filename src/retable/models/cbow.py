"""Continuous bag of words (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.1).

R rows, C centres a row, J contexts a row, D d_model, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.models.base import WindowModel


class CBOW(WindowModel):
    """The mean of the vectors of a window predicts the word in its middle.

    Each word of the window gets its share of the mean's gradient. word2vec.c and gensim give it the whole, which is no
    gradient of any loss (İrsoy et al. 2021, "Corrected CBOW Performs as well as Skip-gram").
    """

    predicts = "centre"

    def __init__(self, words: Sequence[str], d_model: PositiveInt) -> None:
        super().__init__()
        self.d_model = d_model
        self.context = nn.Embedding(len(words), d_model)
        nn.init.uniform_(self.context.weight, -0.5 / d_model, 0.5 / d_model)  # as in word2vec.c

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The windows of (R, C) centres among (R, J) contexts, (R, C, J) pairs, to the vectors (R, C, D) that predict,
        the words (R, C) that are predicted, and which goes with which (R, C, C): a window with its centre, unless it
        is empty."""
        size = pairs.sum(-1, keepdim=True)  # (R, C, 1)
        vectors = self.context(contexts)  # (R, J, D)
        hidden = (pairs / size.clamp(min=1)).to(vectors.dtype) @ vectors
        return hidden, centres, torch.diag_embed(size.squeeze(-1) > 0)

    def vectors(self) -> Tensor:
        """The words' vectors (V, D), without gradient."""
        return self.context.weight.detach()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """table (V, D), units (V,), offsets (V + 1,), scales (V,): the input of word w is scales[w] times the sum of
        table[units[offsets[w] : offsets[w + 1]]], here row w alone. The table is the weights themselves."""
        n = len(self.context.weight)
        return self.context.weight.detach(), np.arange(n, dtype=np.int32), np.arange(n + 1), np.ones(n, np.float32)
