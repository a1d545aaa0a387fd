"""The classification objective for images.

Shapes: B batch, D d_model, L labels.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.images import ImageBatch
from retable.models.base import ImageEncoder, Model
from retable.nn.dropout import Dropout
from retable.objectives.base import Objective


class ImageClassification(Objective):
    """A model that computes one vector per image, with a linear layer that predicts the label."""

    def __init__(self, model: Model, n_labels: int, dropout: float):
        super().__init__()
        require_images(type(model))
        self.model = model
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(model.d_model, n_labels)
        self.head.apply(model.initialise)

    def forward(self, batch: ImageBatch) -> Tensor:
        """Return the logits (B, L)."""
        return self.head(self.dropout(self.model(batch.images)))

    def predict(self, batch: ImageBatch) -> Tensor:
        """Return the most probable label of each image, (B,)."""
        return self(batch).argmax(dim=1)

    def loss(self, batch: ImageBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean cross-entropy of a batch, in nats."""
        loss = F.cross_entropy(self(batch).float(), batch.labels) * batch.weight
        return loss, {"loss": loss.detach()}, None


def require_images(model: type[Model]) -> None:
    """Raise UsageError unless models of this class read images."""
    if not issubclass(model, ImageEncoder):
        raise UsageError(
            f"{model.__name__} does not read images; take recipe=images/vit, images/lenet or images/pixels"
        )
