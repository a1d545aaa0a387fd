"""What the objectives have in common that predict words of windows: negative sampling, the two softmaxes.

R rows, C predictors a row, J targets a row, D d_model.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.windows import WindowSlice, rows
from retable.models.base import WindowModel
from retable.objectives.base import VectorLearning


class WindowPrediction(VectorLearning):
    """A model of word vectors, and `output`, the vectors that its predictions are scored with.

    UsageError for any model but a WindowModel: `SkipGram`, `CBOW` or `FastText`.
    """

    model: WindowModel

    def __init__(self, model: WindowModel, n_outputs: int) -> None:
        super().__init__()
        if not isinstance(model, WindowModel):
            raise UsageError(
                f"{type(model).__name__} predicts no words of windows; write recipe=vectors/skipgram, vectors/cbow or "
                "vectors/fasttext, or for recipe=vectors/glove objective=weighted_least_squares"
            )
        self.model = model
        self.output = nn.Embedding(n_outputs, model.d_model)
        # As in word2vec.c: while they are 0 every choice is even, and the model's vectors decide where they go.
        nn.init.zeros_(self.output.weight)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        """Σ over the pairs of their loss. hidden (R, C, D), targets (R, J) ids, pairs (R, C, J) bool."""
        raise NotImplementedError

    def loss(self, batch: WindowSlice, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The loss of a batch, summed over its pairs; the metric `loss`, its mean in nats a pair; no state.

        The sum makes a learning rate a pair's, as in word2vec, whatever the size of the batch; where gradients are
        averaged over processes, multiply the rate by their number. UsageError where it has diverged.
        """
        # Autocast stays out: a sum over thousands of pairs wants more than bfloat16's 8 bits.
        with torch.autocast(batch.words.device.type, enabled=False):
            hidden, targets, pairs = self.model(*rows(batch))
            loss = self.nats(hidden, targets, pairs, step)
        if not loss.isfinite():
            raise UsageError(
                f"the word vectors diverged at step {step}: too large an update for the pairs of one batch; "
                "lower batches.batch_tokens or optimizer.lr, or have batches.subsample drop more"
            )
        return loss, {"loss": loss.detach() / pairs.sum().clamp(min=1)}, None

    def vectors(self) -> Tensor:
        return self.model.vectors()
