"""The regression objective: predict one number for a whole example, as in STS-B.

Shapes: B batch.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from retable.data.examples import ExampleBatch
from retable.models.base import Model
from retable.objectives.classification import Classification


class Regression(Classification):
    """A classification head with one output; the loss is the mean squared error of scores that are scaled to [0, 1]."""

    def __init__(self, model: Model, low: float, high: float, dropout: float, **more: Any):
        super().__init__(model, 1, dropout, **more)
        self.low, self.high = low, high

    def forward(self, batch: ExampleBatch) -> Tensor:
        """Return the scores (B,), from about `low` to about `high`."""
        return self.low + (self.high - self.low) * super().forward(batch)[:, 0].float()

    def predict(self, batch: ExampleBatch) -> Tensor:
        return self(batch)

    def error(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.mse_loss(outputs[:, 0].float(), (labels.float() - self.low) / (self.high - self.low))
