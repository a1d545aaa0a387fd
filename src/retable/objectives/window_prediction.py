"""The base class of objectives that predict words from windows: negative sampling, full softmax, hierarchical softmax.

Shapes: R rows, C predictors per row, J targets per row, D d_model.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.windows import WindowSlice, rows
from retable.models.base import WindowModel
from retable.objectives.base import VectorLearning


class WindowPrediction(VectorLearning):
    """A word-vector model with a second table of vectors, `output`, for the words to be predicted.

    Raises: UsageError: the model is not a WindowModel (`SkipGram`, `CBOW` or `FastText`).
    """

    model: WindowModel

    def __init__(self, model: WindowModel, n_outputs: int) -> None:
        super().__init__()
        if not isinstance(model, WindowModel):
            raise UsageError(
                f"{type(model).__name__} does not predict words of windows; write recipe=vectors/skipgram, "
                "vectors/cbow or vectors/fasttext, or for recipe=vectors/glove write objective=weighted_least_squares"
            )
        self.model = model
        self.output = nn.Embedding(n_outputs, model.d_model)
        # Output vectors start at 0, as in word2vec.c: all words are equally probable at first. The model's own vectors
        # start at random values, which break the symmetry.
        nn.init.zeros_(self.output.weight)

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        """Compute the sum of the pairs' losses, from hidden (R, C, D), target ids (R, J) and a mask (R, C, J)."""
        raise NotImplementedError

    def loss(self, batch: WindowSlice, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss of a batch, summed over its pairs; the metric `loss` is the mean loss in nats per pair.

        The loss is a sum, so the learning rate applies to each pair, whatever the batch size is, as in word2vec. If
        gradients are averaged over processes, multiply the learning rate by the number of processes.

        Raises: UsageError: the loss is not finite.
        """
        # Autocast is disabled, because a sum over thousands of pairs needs more precision than bfloat16's 8 bits.
        with torch.autocast(batch.words.device.type, enabled=False):
            hidden, targets, pairs = self.model(*rows(batch))
            loss = self.nats(hidden, targets, pairs, step)
        if not loss.isfinite():
            raise UsageError(
                f"the word vectors diverged at step {step}: the update for the pairs of one batch is too large; "
                "lower batches.batch_tokens or optimizer.lr, or drop more words by a smaller batches.subsample above 0"
            )
        return loss, {"loss": loss.detach() / pairs.sum().clamp(min=1)}, None

    def vectors(self) -> Tensor:
        return self.model.vectors()
