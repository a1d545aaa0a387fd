"""Summaries as text: an encoder-decoder writes a document's summary, or a rule selects sentences of the document.

Raffel et al. 2020, section 2.4.

Shapes: B batch, S inputs, U tokens of a summary, with its end mark.

System F10 of docs/systems.yaml.
"""

from collections.abc import Callable, Sequence

from retable.core.errors import UsageError
from retable.data.pairs import PairBatch
from retable.data.summaries import InSentences
from retable.models.base import EncoderDecoder, Model, SentenceRule
from retable.objectives.answer_as_text import AnswerAsText
from retable.objectives.base import Objective


class SummaryAsText(AnswerAsText):
    """A text-to-text objective whose targets are summaries with an end mark, of at most `longest` tokens."""

    def __init__(
        self, model: EncoderDecoder, vocab_size: int, tie: bool, read: Callable[[list[int]], str], longest: int
    ):
        super().__init__(model, vocab_size, tie, read)
        self.longest = longest

    def predict(self, batch: PairBatch) -> list[str]:
        """Write a summary for each row, choosing the most probable token at each step."""
        return [
            self.read(ids) for ids in self.most_likely(batch.source_ids, batch.source_lengths, self.longest).tolist()
        ]


class SummaryByRule(Objective):
    """An objective that returns the summaries of a rule; it has no parameters and no loss."""

    model: SentenceRule

    def __init__(self, model: SentenceRule):
        super().__init__()
        self.model = model

    def predict(self, batch: Sequence[InSentences]) -> list[str]:
        """Return the sentences of each document's summary, one per line."""
        return ["\n".join(each.text[place] for place in self.model.find(each)) for each in batch]


def require_summariser(model: type[Model]) -> None:
    """Raise UsageError unless models of this class can write or select summaries."""
    if not issubclass(model, EncoderDecoder | SentenceRule):
        raise UsageError(
            f"{model.__name__} has one stack, which cannot read a document and write its summary; take an "
            "encoder-decoder such as recipe=summaries/t5_summaries or recipe=summaries/transformer_summaries"
        )
