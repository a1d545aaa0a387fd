"""Skip-gram word vectors (Mikolov et al. 2013a, "Efficient Estimation of Word Representations", section 3.2).

The paper's hierarchical softmax is an objective, `HierarchicalSoftmax`.

R rows, C centres per row, J contexts per row, D d_model, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.models.base import WindowModel


class SkipGram(WindowModel):
    """A model in which the vector of a word predicts each word in the windows around the word.

    Args:
        words: spellings of all words, in the order of their ids.
        d_model: width of the vectors.
    """

    predicts = "context"

    def __init__(self, words: Sequence[str], d_model: PositiveInt) -> None:
        super().__init__()
        self.d_model = d_model
        self.centre = nn.Embedding(len(words), d_model)
        nn.init.uniform_(self.centre.weight, -1 / d_model, 1 / d_model)  # gensim's range, which is twice word2vec.c's

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the centres' vectors (R, C, D), the ids (R, J) of the contexts to predict, and `pairs` (R, C, J)."""
        return self.centre(centres), contexts, pairs

    def vectors(self) -> Tensor:
        return self.centre.weight.detach()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Return the table (V, D), units (V,), offsets (V + 1,) and scales (V,) that `WindowModel.inputs` describes.

        The input vector of word w is row w of the table.
        """
        n = len(self.centre.weight)
        return self.centre.weight.detach(), np.arange(n, dtype=np.int32), np.arange(n + 1), np.ones(n, np.float32)
