"""The answer-span objective: the places in a context where an answer starts and ends (Seo et al. 2017, section 2, the
output layer, and section 2.1).

B batch, T time of the context, D d_model.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.questions import QuestionBatch
from retable.errors import UsageError
from retable.models.base import Model, Reader


class AnswerSpan(nn.Module):
    """A reader with two states for each token of a context, and two softmaxes over its tokens."""

    def __init__(self, model: Model, dropout: float):
        super().__init__()
        require_reader(type(model))
        self.model = model
        self.dropout = nn.Dropout(dropout)
        self.start = nn.Linear(model.d_model, 1, bias=False)
        self.end = nn.Linear(model.d_model, 1, bias=False)
        for head in (self.start, self.end):
            head.apply(model.initialise)

    def forward(self, batch: QuestionBatch) -> tuple[Tensor, Tensor]:
        """The fp32 logits of where an answer starts and of where it ends, (B, T) each, −∞ on padding."""
        starting, ending = self.model(*batch[:4])
        padding = torch.arange(starting.shape[1], device=starting.device) >= batch.context_lengths[:, None]
        start, end = self.start(self.dropout(starting)), self.end(self.dropout(ending))
        return tuple(logits[:, :, 0].float().masked_fill(padding, -torch.inf) for logits in (start, end))

    def loss(self, batch: QuestionBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean over questions of −log p(first) − log p(last) (equation 5)."""
        start, end = self(batch)
        loss = (F.cross_entropy(start, batch.first) + F.cross_entropy(end, batch.last)) * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: QuestionBatch) -> Tensor:
        """The places (B, 2) of the first and the last token of each question's answer."""
        return torch.stack(best_spans(*self(batch)), dim=1)


def require_reader(model: type[Model]) -> None:
    """Raise UsageError for a kind of model that finds no answers."""
    if not issubclass(model, Reader):
        raise UsageError(f"{model.__name__} reads no question beside its context; take recipe=readers/bidaf")


def best_spans(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Log-scores (B, T) of first and last tokens to the places (B,), first ≤ last, with the highest sum; in O(T)."""
    best, first = start.cummax(dim=1)  # up to each place
    last = (best + end).argmax(dim=1, keepdim=True)
    return first.gather(1, last)[:, 0], last[:, 0]
