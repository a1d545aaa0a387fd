"""The text-to-text objective for a model without a separate encoder: the inputs are the prefix of the targets.

All positions of the prefix attend to each other (Raffel et al. 2020, section 3.2.1).

Shapes: B batch, T inputs, U targets, D d_model, V vocabulary.
"""

import inspect

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.core.errors import UsageError
from retable.data.pairs import PairBatch
from retable.models.base import EncoderDecoder, LeftToRight, Model
from retable.objectives.text_to_text import TextToText


class PrefixLM(TextToText):
    """A text-to-text objective for a left-to-right model with attention to a whole prefix; only targets are predicted.

    The decoder's start token is placed between the inputs and the targets. The first target is predicted from this
    start token.
    """

    model: LeftToRight  # type: ignore[assignment]  # one stack that reads and writes

    @staticmethod
    def check(model: Model) -> None:
        """Raise UsageError unless a model can attend to a whole prefix."""
        if not isinstance(model, LeftToRight):
            other = "text_to_text" if isinstance(model, EncoderDecoder) else "masked_lm"
            raise UsageError(
                f"{type(model).__name__} does not continue a prefix from left to right, as objective=prefix_lm "
                f"requires; take recipe=t5/prefix_lm, or write objective={other}"
            )
        if "prefix" not in inspect.signature(model.forward).parameters:
            raise UsageError(
                f"{type(model).__name__} does not have attention to a whole prefix; take recipe=t5/prefix_lm, or "
                "write objective=causal_lm"
            )

    def decoded(self, batch: PairBatch) -> Tensor:
        U = batch.target_ids.shape[1]
        places = batch.source_lengths[:, None] + torch.arange(U, device=batch.labels.device)  # in `text`
        text = F.pad(batch.source_ids, (0, U)).scatter(1, places, batch.target_ids)
        hidden, _ = self.model(text, prefix=batch.source_lengths)
        return hidden.gather(1, places[:, :, None].expand(-1, -1, hidden.shape[2]))
