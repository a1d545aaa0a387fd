"""The full softmax over the vocabulary (Mikolov et al. 2013b, equation 2): the exact objective, for small vocabularies.

R rows, C predictors a row, J targets a row, D d_model, V vocabulary.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.models.base import WindowModel
from retable.objectives.window_prediction import WindowPrediction


class FullSoftmax(WindowPrediction):
    """−log p(o | v) with p(o | v) = exp(u_o·v) / Σ_w exp(u_w·v) for a pair. It costs V scores a predictor.

    counts: occurrences of each word (V,). A word of count 0 is no outcome. UsageError where all are 0.
    """

    _outcomes: Tensor

    def __init__(self, model: WindowModel, counts: ArrayLike) -> None:
        outcomes = torch.from_numpy(np.asarray(counts) > 0)
        if not outcomes.any():
            raise UsageError("the full softmax needs counts of words, not all of them 0")
        super().__init__(model, len(outcomes))
        self.register_buffer("_outcomes", outcomes, persistent=False)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        scores = hidden @ self.output.weight.T  # (R, C, V)
        log_normaliser = scores.masked_fill(~self._outcomes, float("-inf")).logsumexp(-1)  # (R, C)
        of_pairs = hidden @ self.output(targets).mT  # (R, C, J)
        return (log_normaliser * pairs.sum(-1)).sum() - (of_pairs * pairs).sum()
