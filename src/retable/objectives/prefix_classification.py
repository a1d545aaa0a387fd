"""The objective of FUDGE's discriminator: predict a text's label from each of its prefixes.

Yang and Klein 2021, arXiv 2104.05218, section 3.

Shapes: B batch, T time, N real tokens, D d_model, L labels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.core.errors import UsageError
from retable.data.examples import ExampleBatch
from retable.models.base import LeftToRight, Model
from retable.objectives.classification import Classification


class PrefixClassification(Classification):
    """A left-to-right model with a linear classifier on the state of every token.

    The label of a whole text is predicted from the state of the text's last token.
    """

    model: LeftToRight

    def __init__(self, model: LeftToRight, n_labels: int, dropout: float):
        require_left_to_right(type(model))
        super().__init__(model, n_labels, dropout)

    @property
    def start(self) -> Any:
        """Return the state to pass to the model with a text's first token; the model then returns the next states."""
        return self.model.start

    def loss(self, batch: ExampleBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean cross-entropy of the labels, in nats, over all prefixes of a batch's texts."""
        hidden, _ = self.model(batch.input_ids)
        real = torch.arange(hidden.shape[1], device=hidden.device) < batch.lengths[:, None]
        outputs = self.head(self.dropout(hidden[real]))  # (N, L)
        loss = F.cross_entropy(outputs.float(), batch.labels.repeat_interleave(batch.lengths)) * batch.weight
        return loss, {"loss": loss.detach()}, None


def require_left_to_right(model: type[Model]) -> None:
    """Raise UsageError unless models of this class read from left to right."""
    if not issubclass(model, LeftToRight):
        raise UsageError(
            f"{model.__name__} does not have a state for each beginning of a text; take a left-to-right model, as in "
            "recipe=encoders/lstm_prefixes"
        )
