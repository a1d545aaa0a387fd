"""The answer-span objective: predict the places in a context where an answer starts and ends.

See Seo et al. 2017, sections 2 ("output layer") and 2.1. For encoders, see Devlin et al. 2019, section 4.2.

Shapes: B batch, T time of the context (in tokens for a reader, in words for an encoder), S time of an encoder's input,
D d_model.
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

Batch = QuestionBatch | PassageBatch  # a reader reads a QuestionBatch, and an encoder reads a PassageBatch


class AnswerSpan(Objective):
    """A model with two softmaxes over the positions in a context: one for the answer's start and one for its end.

    A reader computes two states per context token, one for the start and one for the end. An encoder reads the question
    and the context as one sequence, and the softmaxes are over words. The softmax for the start uses the state of a
    word's first token, and the softmax for the end uses the state of the word's last token.
    """

    def __init__(self, model: Model, dropout: float):
        super().__init__()
        require_reader(type(model))
        model.drop_pooler()
        self.model = model
        self.dropout = Dropout(dropout)
        self.start = nn.Linear(model.d_model, 1, bias=False)
        self.end = nn.Linear(model.d_model, 1, bias=False)
        for head in (self.start, self.end):
            head.apply(model.initialise)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the fp32 logits of the answer's start and end, (B, T) each, −∞ on padding."""
        starting, ending = self._states(batch)
        padding = torch.arange(starting.shape[1], device=starting.device) >= batch.context_lengths[:, None]
        start, end = self.start(self.dropout(starting)), self.end(self.dropout(ending))
        return tuple(logits[:, :, 0].float().masked_fill(padding, -torch.inf) for logits in (start, end))

    def _states(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the states, (B, T, D) each, from which the start and the end of the answer are predicted."""
        if isinstance(batch, QuestionBatch):
            starting, ending = self.model(*batch[:4])
        else:
            hidden = states_of(self.model, batch.input_ids, batch.lengths, batch.segments)  # (B, S, D)
            starting, ending = (hidden.take_along_dim(at[:, :, None], dim=1) for at in (batch.firsts, batch.lasts))
        return starting, ending

    def loss(self, batch: Batch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean over questions of −log p(first) − log p(last), in nats (equation 5)."""
        start, end = self(batch)
        loss = (F.cross_entropy(start, batch.first) + F.cross_entropy(end, batch.last)) * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: Batch) -> Tensor:
        """Return the first and the last position of each answer, (B, 2): tokens for a reader, words for an encoder."""
        return torch.stack(best_spans(*self(batch)), dim=1)


class AnswerByRule(Objective):
    """An objective that returns the answers of a rule; it has no parameters and no loss."""

    model: SpanRule

    def __init__(self, model: SpanRule):
        super().__init__()
        self.model = model

    def predict(self, batch: Sequence[QuestionInWords]) -> list[tuple[int, int]]:
        """Return the places of the first and the last word of each answer."""
        return [self.model.find(question) for question in batch]


def require_reader(model: type[Model]) -> None:
    """Raise UsageError unless models of this class can answer questions."""
    if not issubclass(model, Reader | SpanRule | EncoderDecoder):
        require_token_states(model, "find an answer by")


def best_spans(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Find in each row the span with the highest sum of the log-scores `start` and `end`, (B, T), in time O(T).

    Returns: the first and the last place of each span, (B,) each, with first ≤ last.
    """
    best, first = start.cummax(dim=1)  # the best start at or before each place
    last = (best + end).argmax(dim=1, keepdim=True)
    return first.gather(1, last)[:, 0], last[:, 0]
