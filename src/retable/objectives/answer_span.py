"""The answer-span objective: the places in a context where an answer starts and ends (Seo et al. 2017, section 2, the
output layer, and section 2.1; of an encoder Devlin et al. 2019, section 4.2).

B batch, T time of the context: its tokens to a reader, its words to an encoder; S time of what an encoder reads, D
d_model.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.questions import PassageBatch, QuestionBatch, QuestionInWords
from retable.models.base import EncoderDecoder, Model, Reader, SpanRule
from retable.nn.dropout import Dropout
from retable.objectives.base import Objective
from retable.objectives.states import require_token_states, states_of

Batch = QuestionBatch | PassageBatch  # to a reader, or to an encoder


class AnswerSpan(Objective):
    """A reader with two states for each token of a context, and two softmaxes over its tokens; or an encoder of the
    question and the context in one sequence, whose softmaxes are over words: one starts an answer by the state of its
    first token, and ends it by that of its last."""

    def __init__(self, model: Model, dropout: float):
        super().__init__()
        require_reader(type(model))
        model.leave_pooler()
        self.model = model
        self.dropout = Dropout(dropout)
        self.start = nn.Linear(model.d_model, 1, bias=False)
        self.end = nn.Linear(model.d_model, 1, bias=False)
        for head in (self.start, self.end):
            head.apply(model.initialise)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The fp32 logits of where an answer starts and of where it ends, (B, T) each, −∞ on padding."""
        starting, ending = self._states(batch)
        padding = torch.arange(starting.shape[1], device=starting.device) >= batch.context_lengths[:, None]
        start, end = self.start(self.dropout(starting)), self.end(self.dropout(ending))
        return tuple(logits[:, :, 0].float().masked_fill(padding, -torch.inf) for logits in (start, end))

    def _states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Two states (B, T, D) for each place of the context."""
        if isinstance(batch, QuestionBatch):
            starting, ending = self.model(*batch[:4])
        else:
            hidden = states_of(self.model, batch.input_ids, batch.lengths, batch.segments)  # (B, S, D)
            starting, ending = (hidden.take_along_dim(at[:, :, None], dim=1) for at in (batch.firsts, batch.lasts))
        return starting, ending

    def loss(self, batch: Batch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean over questions of −log p(first) − log p(last) (equation 5)."""
        start, end = self(batch)
        loss = (F.cross_entropy(start, batch.first) + F.cross_entropy(end, batch.last)) * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: Batch) -> Tensor:
        """The places (B, 2) of the first and the last token, or word, of each question's answer."""
        return torch.stack(best_spans(*self(batch)), dim=1)


class AnswerByRule(Objective):
    """A rule's answers. It has no parameters, and so no loss."""

    model: SpanRule

    def __init__(self, model: SpanRule):
        super().__init__()
        self.model = model

    def predict(self, batch: Sequence[QuestionInWords]) -> list[tuple[int, int]]:
        """The places of the first and the last word of each question's answer."""
        return [self.model.find(question) for question in batch]


def require_reader(model: type[Model]) -> None:
    """Raise UsageError for a kind of model that finds no answers."""
    if not issubclass(model, Reader | SpanRule | EncoderDecoder):
        require_token_states(model, "find an answer by")


def best_spans(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Log-scores (B, T) of first and last tokens to the places (B,), first ≤ last, with the highest sum; in O(T)."""
    best, first = start.cummax(dim=1)  # up to each place
    last = (best + end).argmax(dim=1, keepdim=True)
    return first.gather(1, last)[:, 0], last[:, 0]
