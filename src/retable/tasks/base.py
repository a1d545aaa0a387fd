"""Base class of tasks: examples, objective, predictions and scores, for the stages that train on a task."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

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
Text = Tokenizer | Vocabulary  # encodes text as ids of tokens, or of words


class Fold(NamedTuple):
    """One fold of a cross-validation."""

    task: "Task[Any, Any]"  # its test split is this fold, its training split the other folds
    units: Sequence[int] | None = None  # indices of the fold's units among the units of all folds; None without folds


class Task(Measured, Protocol[Example, Prediction]):
    """A kind of task with its data.

    The methods of this class are defaults; each kind overrides some of them.
    """

    kind: str  # name in tables, as in tagging/test/f1
    inputs: list[Path]  # files that the task reads
    splits: Sequence[str] = SPLITS
    metrics: Sequence[str] = ()  # metrics to compute; if empty, the mean of each numeric column of the units
    selects: str | None  # metric for early stopping (`patience`), higher is better; None disables early stopping
    convention: Callable[[str], str] | None = None  # rewrites a word that has no vector, for a second lookup
    in_words: bool = False  # whether texts are split into words, for models that read spelling
    has_no_text: bool = False  # whether examples are not texts, such as images
    at_once: int = 64  # examples per batch when predicting

    def folds(self) -> list[Fold]:
        """Return the folds of a cross-validation; without cross-validation, return the task as the only fold.

        A separate model is trained and tested for each fold.
        """
        return [Fold(self)]

    @property
    def measured(self) -> Sequence[str]:
        """Return the splits to evaluate the trained model on."""
        return self.splits[1:]

    def cell(self, split: str) -> str:
        """Return the prefix of metric names of a split, such as tagging/test."""
        return f"{self.kind}/{split}"

    def require(self, model: type[Model], d_predicate: int) -> None:
        """Check that the model is suitable for the task, before any data are read.

        Args:
            d_predicate: size of the model's predicate embedding; 0 for models without it.

        Raises: UsageError: the model is not suitable.
        """
        ...

    def examples(self, split: str) -> Sequence[Example]:
        """Return the examples of a split.

        Raises: UsageError: data are missing or damaged.
        """
        ...

    def words(self, examples: Sequence[Example]) -> Iterable[Sequence[str]]:
        """Return the texts of examples as lists of words, for models that read spelling."""
        raise NotImplementedError

    def labelled(self, examples: Sequence[Example]) -> tuple[Sequence[Sequence[str]], Sequence[Any]]:
        """Return texts as lists of words, and their labels, for models that are fitted without gradient steps."""
        raise NotImplementedError

    def answered(self, example: Example) -> Answered:
        """Return the question and the answer of an example, to compare examples of two splits."""
        return repr(example), None

    def warnings(self, examples: Mapping[str, Sequence[Example]]) -> list[str]:
        """Return warnings about examples, of any split, that make scores unreliable."""
        return []

    def learnt(self) -> dict[str, Any]:
        """Return values, found in the training examples, that predictions need, such as the set of tags.

        The values must be serialisable as JSON.
        """
        return {}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        """Restore the values that `learnt` returned, instead of reading the training examples."""

    def objective(self, model: Model, text: Text, **head: Any) -> Objective:
        """Return the objective to train the model with.

        Args:
            text: the tokenizer or vocabulary of the model.
            head: settings of the objective's output head.
        """
        ...

    def encode(self, model: Model, text: Text, examples: Sequence[Example]) -> Encoded:
        """Encode the examples as model inputs.

        Args:
            text: the tokenizer or vocabulary of the model.

        Raises: UsageError: an example does not fit the model.
        """
        ...

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Batches:
        """Return training batches.

        Args:
            batch_size: examples per batch.
            seed: seed of the random order of examples.
        """
        return Bucketed(encoded, batch_size, seed)

    def predict(self, objective: Objective, encoded: Encoded) -> list[Prediction]:
        """Predict each example with the objective, in order.

        Args:
            encoded: the result of `encode` for the same model.
        """
        places = range(len(encoded.lengths))
        return self.read(encoded, places, predict(objective, encoded, self.at_once))

    def read(self, encoded: Encoded, places: Sequence[int], rows: list[Any]) -> list[Prediction]:
        """Convert the objective's results for some examples to predictions.

        Args:
            places: indices of the examples in `encoded`.
            rows: the objective's result for each of these examples.
        """
        return rows

    def units(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> pd.DataFrame:
        """Return one row per unit (the item that metrics average over, such as a sentence) with its scores.

        The rows are used to compute metrics, confidence intervals and significance tests.

        Args:
            predictions: one for each of `examples`, in the same order.
        """
        ...

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Return the units of a split, or of the additional test set that ends the task's name.

        For example, the task mnli_mismatched selects the units of validation_mismatched.

        Args:
            units: all rows of `units.csv`, including the column `split`.
            task: name of the task, with the name of an additional test set at its end, if any.
        """
        sets = [name for name in units["split"].unique() if name.startswith(split)]
        sets = [name for name in sets if task.endswith(name.removeprefix(split))]
        return units[units["split"] == max(sets, key=len, default=split)]

    def score(self, units: pd.DataFrame) -> dict[str, float]:
        """Compute the metrics of units; the result is empty if there are no reference labels."""
        numbers = units.select_dtypes(["number", "bool"]).columns
        return self.values(units, self.metrics or [name for name in numbers if name != "unit"])

    def validation(self, examples: Sequence[Example], encoded: Encoded) -> Measure:
        """Return the measurement of the validation split that the learning curve shows.

        Args:
            encoded: the result of `encode` for `examples`.
        """

        def score(places: list[int], rows: list[Any]) -> dict[str, float]:
            return self.validated(self.units([examples[i] for i in places], self.read(encoded, places, rows)))

        return Predictions(encoded, self.at_once, score)

    def validated(self, units: pd.DataFrame) -> dict[str, float]:
        """Compute the learning curve's metrics from the units of the validation split."""
        return self.score(units)

    def write(
        self, folder: Path, split: str, examples: Sequence[Example], predictions: Sequence[Prediction]
    ) -> list[str]:
        """Write files for external scorers, and return the names of the files that are small enough to view.

        Args:
            folder: folder of the cell, the output folder of this run.
            predictions: one for each of `examples`, in the same order.
        """
        return []

    def facts(self, examples: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
        """Return additional entries for the record of a cell, the committed summary of a run."""
        return {}


def require_spelling(model: type[Model], instead: str) -> None:
    """Check that the model reads words by their spelling.

    Raises: UsageError: the model reads tokens; the message suggests `instead`.
    """
    if not model.reads_words:
        raise UsageError(f"{model.__name__} does not read words by their spelling; write {instead}")


def require_no_predicate(d_predicate: int) -> None:
    """Check that the model does not need predicates, for tasks without predicates.

    Raises: UsageError: the model has a predicate embedding.
    """
    if d_predicate:
        raise UsageError(
            f"the task has no predicates, but the model needs them (model.d_predicate={d_predicate}); write "
            "recipe=taggers/bilstm_crf, or task=conll2012_roles"
        )
