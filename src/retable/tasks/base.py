"""What a task is to the stage that trains on it: its examples, its objective, and what its predictions are worth."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd

from retable.core.errors import UsageError
from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS
from retable.data.batches import Batches, Measure
from retable.data.bucketed import Bucketed, Encoded
from retable.data.spelling import Vocabulary
from retable.evaluation.prediction import Predictions, predict
from retable.metrics.units import Measured
from retable.models.base import Model
from retable.objectives.base import Objective
from retable.tokenizers.tokenizer import Tokenizer

Example = TypeVar("Example")
Prediction = TypeVar("Prediction")
Text = Tokenizer | Vocabulary  # by which a text becomes ids: tokens, or words that are spelt


class Task(Measured, Protocol[Example, Prediction]):
    """A kind of task on its data. What stands here is what most kinds do; each says the rest."""

    kind: str  # what tables call it: tagging/test/f1
    inputs: list[Path]  # the files that it depends on
    splits: Sequence[str] = SPLITS
    metrics: Sequence[str] = ()  # that units are scored by; none named: the means of all columns that hold numbers
    selects: str | None  # the metric of the best validation, the higher the better; None: none of them
    convention: Callable[[str], str] | None = None  # under which a word stands that has no vector as it is
    in_words: bool = False  # its texts come in words, and a model that spells reads them as they are
    wordless: bool = False  # its examples are no texts
    at_once: int = 64  # examples that are predicted together

    @property
    def measured(self) -> Sequence[str]:
        """The splits that the trained model is measured on."""
        return self.splits[1:]

    def cell(self, split: str) -> str:
        """What the names of a split's metrics begin with."""
        return f"{self.kind}/{split}"

    def require(self, model: type[Model], d_predicate: int) -> None:
        """Raise UsageError for a kind of model that can't do the task, before any data are read.

        d_predicate: of the model's, 0 where it is told no predicate.
        """
        ...

    def examples(self, split: str) -> Sequence[Example]:
        """The examples of a split. UsageError for data that are missing or broken."""
        ...

    def words(self, examples: Sequence[Example]) -> Iterable[Sequence[str]]:
        """The texts of examples in words, for a model that reads them by their spelling."""
        raise NotImplementedError

    def answered(self, example: Example) -> Answered:
        """Return what an example asks and its answer, by which examples of two splits are compared."""
        return repr(example), None

    def warnings(self, examples: Mapping[str, Sequence[Example]]) -> list[str]:
        """Return lines about the examples of all splits that make scores doubtful."""
        return []

    def learnt(self) -> dict[str, Any]:
        """What predictions need of the training examples beside the weights, such as the tags that there are; JSON can
        hold it."""
        return {}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        """Have what was `learnt`, in place of examples."""

    def objective(self, model: Model, text: Text, **head: Any) -> Objective:
        """What trains the model, with the head that the settings describe."""
        ...

    def encode(self, model: Model, text: Text, examples: Sequence[Example]) -> Encoded:
        """The examples as the model reads them."""
        ...

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Batches:
        """Training batches."""
        return Bucketed(encoded, batch_size, seed)

    def predict(self, objective: Objective, encoded: Encoded) -> list[Prediction]:
        """What the objective predicts of each example, in their order."""
        places = range(len(encoded.lengths))
        return self.read(encoded, places, predict(objective, encoded, self.at_once))

    def read(self, encoded: Encoded, places: Sequence[int], rows: list[Any]) -> list[Prediction]:
        """The predictions of the examples at `places`, of what `objective.predict` says of them."""
        return rows

    def units(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> pd.DataFrame:
        """A row a unit of the metrics, with what it adds to them: of this come their values, intervals and tests."""
        ...

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Of a task that is called after a further set, as mnli_mismatched after validation_mismatched, those of it."""
        sets = [name for name in units["split"].unique() if name.startswith(split)]
        sets = [name for name in sets if task.endswith(name.removeprefix(split))]
        return units[units["split"] == max(sets, key=len, default=split)]

    def score(self, units: pd.DataFrame) -> dict[str, float]:
        """The metrics of some units; none where the data do not tell what is right."""
        numbers = units.select_dtypes(["number", "bool"]).columns
        return self.values(units, self.metrics or [name for name in numbers if name != "unit"])

    def validation(self, examples: Sequence[Example], encoded: Encoded) -> Measure:
        """What the learning curve shows of the validation split."""

        def score(places: list[int], rows: list[Any]) -> dict[str, float]:
            return self.validated(self.units([examples[i] for i in places], self.read(encoded, places, rows)))

        return Predictions(encoded, self.at_once, score)

    def validated(self, units: pd.DataFrame) -> dict[str, float]:
        """The metrics of the learning curve, of the units of the validation split."""
        return self.score(units)

    def write(
        self, folder: Path, split: str, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> list[str]:
        """Leave what others' scorers read, and return the names of the files that are small ones to look at."""
        return []

    def facts(self, examples: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
        """What the record of a cell says beside its metrics."""
        return {}


def require_spelling(model: type[Model], instead: str) -> None:
    """Raise UsageError for a kind of model that does not read words by their spelling."""
    if not model.spelt:
        raise UsageError(f"{model.__name__} does not read words by their spelling; write {instead}")


def require_no_predicate(d_predicate: int) -> None:
    """Raise UsageError for a model that marks predicates, which the task does not name."""
    if d_predicate:
        raise UsageError(
            f"the task names no predicates for model.d_predicate={d_predicate} to mark; write "
            "recipe=taggers/bilstm_crf, or task=conll2012_roles"
        )
