"""GloVe's objective (Pennington et al. 2014, equation 8).

Shapes: n cells, D d_model, V vocabulary.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, Positive
from retable.data.cooccurrences import Cells
from retable.models.base import CooccurrenceModel
from retable.objectives.base import VectorLearning


class WeightedLeastSquares(VectorLearning):
    """The loss f(X_ij)·(w_i·w̃_j + b_i + b̃_j − log X_ij)², with f(x) = min(1, (x / x_max)^power) (equation 9).

    Args:
        model: a `GloVe`, whose parameters are w and b; the parameters of this objective are w̃ and b̃.
        counts: number of occurrences of each word, (V,); only the length V is used.
    Raises: UsageError: the model is not a CooccurrenceModel.
    """

    model: CooccurrenceModel

    def __init__(
        self, model: CooccurrenceModel, counts: ArrayLike, x_max: Positive = 100.0, power: NonNegative = 0.75
    ) -> None:
        super().__init__()
        if not isinstance(model, CooccurrenceModel):
            raise UsageError(
                f"weighted least squares can train only GloVe, not {type(model).__name__}; write recipe=vectors/glove"
            )
        self.model, self.x_max, self.power = model, x_max, power
        vocab_size = len(np.asarray(counts))
        self.context, self.context_bias = nn.Embedding(vocab_size, model.d_model), nn.Embedding(vocab_size, 1)
        self.context.apply(model.initialise)
        self.context_bias.apply(model.initialise)

    def loss(self, batch: Cells, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss of a batch, summed over its cells; the metric `loss` is the mean loss per cell."""
        words, contexts, values = batch
        bias = self.model.word_bias(words) + self.context_bias(contexts)  # (n, 1)
        # The scores are not written as a matrix product, because autocast would compute a matrix product with too low
        # precision for the fit. Autocast does not change element-wise products.
        scores = (self.model.word(words) * self.context(contexts)).sum(-1) + bias.squeeze(-1)
        weights = (values / self.x_max).clamp(max=1) ** self.power
        loss = (weights * (scores - values.log()) ** 2).sum()
        return loss, {"loss": loss.detach() / max(len(words), 1)}, None

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """Return w + w̃ (V, D), the vectors that the paper evaluates (section 4.2)."""
        return self.model.word.weight + self.context.weight
