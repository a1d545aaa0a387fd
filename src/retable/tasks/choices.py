"""Multiple choice: select the correct ending of a context."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from retable.core.artifacts import require
from retable.corpora.choice_files import ChoiceFiles
from retable.corpora.multiple_choice import Choice
from retable.corpora.overlap import Answered
from retable.data.bucketed import Encoded
from retable.data.choices import Choices, encoded
from retable.metrics.labelled import Labelled
from retable.models.base import Model
from retable.objectives.classification import require_summary
from retable.objectives.multiple_choice import MultipleChoice
from retable.tasks.base import Task, Text, require_no_predicate
from retable.tasks.reading import pack
from retable.tokenizers.tokenizer import Tokenizer


class ChoiceTask(Labelled, Task[Choice, int]):
    """A multiple-choice task; the model reads each ending with its context, as an ordered pair of sentences.

    The unit of evaluation is an example, with the index of the correct ending and of the chosen ending.
    """

    kind = "choices"
    metrics = ("accuracy",)  # share of examples for which the model chooses the correct ending
    selects = "accuracy"

    def __init__(self, choices: ChoiceFiles):
        self.inputs, self._source = choices.inputs, choices

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_summary(model, pairs=True)
        require_no_predicate(d_predicate)

    @cached_property
    def _choices(self) -> dict[str, list[Choice]]:
        for path in self.inputs:
            if "outputs" in path.parts:  # the error of `require` names the stage that writes the file
                require(path)
        return self._source.splits()

    def examples(self, split: str) -> list[Choice]:
        return self._choices[split]

    def answered(self, example: Choice) -> Answered:
        return tuple(" ".join(text.split()) for text in (example.context, *example.endings)), example.label

    def objective(self, model: Model, text: Text, **head: Any) -> MultipleChoice:
        return MultipleChoice(model, **head)

    def encode(self, model: Model, text: Text, examples: Sequence[Choice]) -> Encoded:
        assert isinstance(text, Tokenizer)
        pairs = [(each.context, ending) for each in examples for ending in each.endings]
        n_endings = np.array([len(each.endings) for each in examples])
        labels = [each.label for each in examples if each.label is not None]  # all these examples have a label
        return encoded(Choices(pack(model, text, pairs, symmetric=False), n_endings, labels))

    def units(self, examples: Sequence[Choice], predictions: Sequence[int]) -> pd.DataFrame:
        labels = [each.label for each in examples]
        return pd.DataFrame({"unit": range(len(labels)), "label": labels, "prediction": predictions})
