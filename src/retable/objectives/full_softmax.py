"""The full softmax over the vocabulary: the exact objective of word vectors, fast enough only for small vocabularies.

Mikolov et al. 2013b, equation 2.

Shapes: R rows, C predictors per row, J targets per row, D d_model, V vocabulary.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.models.base import WindowModel
from retable.objectives.window_prediction import WindowPrediction


class FullSoftmax(WindowPrediction):
    """The loss −log p(o | v) of a pair, with p(o | v) = exp(u_o·v) / Σ_w exp(u_w·v).

    The loss needs the scores of all V words for each predictor (input vector).

    counts: number of occurrences of each word, (V,). A word with count 0 has probability 0.

    Raises: UsageError: all counts are 0.
    """

    _outcomes: Tensor

    def __init__(self, model: WindowModel, counts: ArrayLike) -> None:
        outcomes = torch.from_numpy(np.asarray(counts) > 0)
        if not outcomes.any():
            raise UsageError("counts for the full softmax are all 0; pass the counts of a text's words")
        super().__init__(model, len(outcomes))
        self.register_buffer("_outcomes", outcomes, persistent=False)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        scores = hidden @ self.output.weight.T  # (R, C, V)
        log_normaliser = scores.masked_fill(~self._outcomes, float("-inf")).logsumexp(-1)  # (R, C)
        of_pairs = hidden @ self.output(targets).mT  # (R, C, J)
        return (log_normaliser * pairs.sum(-1)).sum() - (of_pairs * pairs).sum()
