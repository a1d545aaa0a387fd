"""Text classification that is trained to predict the class from every prefix of a text."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from retable.core.errors import UsageError
from retable.data import templates
from retable.data.bucketed import Encoded, count_weight
from retable.data.examples import encoded
from retable.models.base import LeftToRight, Model
from retable.objectives.prefix_classification import PrefixClassification, require_left_to_right
from retable.tasks.base import Text
from retable.tasks.labels import Classes
from retable.tasks.sentences import Example, SentenceTask
from retable.tokenizers.tokenizer import Tokenizer


class PrefixTask(SentenceTask):
    """Classification of single sentences by a model that is trained on every prefix.

    A boundary token is placed before and after each sentence, as in language modelling.
    """

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_left_to_right(model)
        if not isinstance(self.labels, Classes) or self._pairs:
            raise UsageError(
                "prefixes need classes and single sentences; set task.labels, and write one column in task.sentences"
            )
        super().require(model, d_predicate)

    def objective(self, model: Model, text: Text, *, dropout: float) -> PrefixClassification:  # type: ignore[override]
        assert isinstance(model, LeftToRight)
        return PrefixClassification(model, len(self.labels.names), dropout)

    def encode(self, model: Model, text: Text, examples: Sequence[Example]) -> Encoded:
        assert isinstance(text, Tokenizer)
        ids = text.encode_batch([sentence for each in examples for sentence in each.sentences])
        inputs = templates.apart([(row,) for row in ids], text.boundary, text.boundary, model.max_length)
        encoded_rows = encoded(inputs, [0 if each.label is None else each.label for each in examples])
        return replace(encoded_rows, weigh=partial(count_weight, inputs.lengths))
