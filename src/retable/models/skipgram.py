"""Skip-gram word vectors (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.2).

The paper's hierarchical softmax is an objective, and objectives stand apart.

R rows, C centres a row, J contexts a row, D d_model, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.models.base import WindowModel


class SkipGram(WindowModel):
    """A word's vector v predicts each word of the windows that it is the centre of."""

    predicts = "context"

    def __init__(self, words: Sequence[str], d_model: PositiveInt) -> None:
        super().__init__()
        self.d_model = d_model
        self.centre = nn.Embedding(len(words), d_model)
        nn.init.uniform_(self.centre.weight, -1 / d_model, 1 / d_model)  # gensim's, twice word2vec.c's

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The windows of (R, C) centres among (R, J) contexts, (R, C, J) pairs, to the vectors (R, C, D) that predict,
        the words (R, J) that are predicted, and which goes with which (R, C, J)."""
        return self.centre(centres), contexts, pairs

    def vectors(self) -> Tensor:
        """The words' vectors (V, D), without gradient."""
        return self.centre.weight.detach()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """table (V, D), units (V,), offsets (V + 1,), scales (V,): the input of word w is scales[w] times the sum of
        table[units[offsets[w] : offsets[w + 1]]], here row w alone. The table is the weights themselves."""
        n = len(self.centre.weight)
        return self.centre.weight.detach(), np.arange(n, dtype=np.int32), np.arange(n + 1), np.ones(n, np.float32)
