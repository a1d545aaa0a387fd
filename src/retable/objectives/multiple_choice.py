"""The multiple-choice objective: predict which of several endings continues a beginning.

The model reads each ending together with the beginning, as a pair of sentences. A linear layer computes one score per
ending, and the softmax is over the endings of an example (Radford et al. 2018, section 3.3; Devlin et al. 2019, section
4.4).

Shapes: B batch, R rows (the endings of all examples of a batch), C endings of an example.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.choices import ChoiceBatch
from retable.models.base import Model
from retable.objectives.classification import Classification


class MultipleChoice(Classification):
    """A classifier of pairs with one score per row, without a bias, because a bias cannot change the softmax."""

    def __init__(self, model: Model, dropout: float, **more: Any):
        super().__init__(model, 1, dropout, pairs=True, **more)
        last: Any = self.head[-1] if isinstance(self.head, nn.Sequential) else self.head
        last.bias = None

    def forward(self, batch: ChoiceBatch) -> Tensor:  # type: ignore[override]  # several rows per example
        """Return the scores of all endings, fp32 (B, C), with −∞ where an example has fewer than C endings."""
        return by_example(super().forward(batch.rows)[:, 0], batch.n_endings)

    def loss(  # type: ignore[override]  # several rows per example
        self, batch: ChoiceBatch, state: Any, step: int
    ) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean over examples of −log p(correct ending), plus the auxiliary loss over all rows."""
        rows = batch.rows
        hidden, other = self._read(rows)
        scores = by_example(self._label(rows, hidden, other)[:, 0], batch.n_endings)
        loss = F.cross_entropy(scores, batch.labels) * batch.weight
        metrics = {"loss": loss.detach()}
        if self.auxiliary:
            nats = self._next_token(hidden, rows.input_ids, rows.lengths) * rows.weight
            metrics["auxiliary_loss"] = nats.detach()
            loss = loss + self.auxiliary * nats
        return loss, metrics, None


def by_example(scores: Tensor, n_endings: Tensor) -> Tensor:
    """Arrange the scores (R,) of all endings as one row per example, fp32 (B, C), with −∞ for missing endings."""
    endings = torch.arange(int(n_endings.max()), device=scores.device)
    exist = endings < n_endings[:, None]
    return torch.full(exist.shape, -torch.inf, device=scores.device).masked_scatter(exist, scores.float())
