"""The common part of objectives that predict words of windows: negative sampling and two softmaxes.

R rows, C predictors per row, J targets per row, D d_model.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.windows import WindowSlice, rows
from retable.models.base import WindowModel
from retable.objectives.base import VectorLearning


class WindowPrediction(VectorLearning):
    """A model of word vectors, with `output`, the vectors that score its predictions.

    Raises: UsageError: the model is not a WindowModel (`SkipGram`, `CBOW` or `FastText`).
    """

    model: WindowModel

    def __init__(self, model: WindowModel, n_outputs: int) -> None:
        super().__init__()
        if not isinstance(model, WindowModel):
            raise UsageError(
                f"{type(model).__name__} does not predict words of windows; write recipe=vectors/skipgram, "
                "vectors/cbow or vectors/fasttext, or for recipe=vectors/glove objective=weighted_least_squares"
            )
        self.model = model
        self.output = nn.Embedding(n_outputs, model.d_model)
        # As in word2vec.c: with 0 all outcomes are equally probable, and the model's vectors break the symmetry.
        nn.init.zeros_(self.output.weight)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        """Compute the sum of the pairs' losses, for hidden (R, C, D), targets (R, J) ids, pairs (R, C, J) bool."""
        raise NotImplementedError

    def loss(self, batch: WindowSlice, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss of a batch, summed over its pairs; the metric `loss` is its mean in nats per pair.

        Because of the sum, the learning rate is per pair, as in word2vec, for any batch size. Where gradients are
        averaged over processes, multiply the rate by their number.

        Raises: UsageError: the loss is not finite.
        """
        # No autocast: a sum over thousands of pairs needs more than bfloat16's 8 bits.
        with torch.autocast(batch.words.device.type, enabled=False):
            hidden, targets, pairs = self.model(*rows(batch))
            loss = self.nats(hidden, targets, pairs, step)
        if not loss.isfinite():
            raise UsageError(
                f"the word vectors diverged at step {step}: the update for the pairs of one batch is too large; "
                "lower batches.batch_tokens or optimizer.lr, or have batches.subsample drop more"
            )
        return loss, {"loss": loss.detach() / pairs.sum().clamp(min=1)}, None

    def vectors(self) -> Tensor:
        return self.model.vectors()
