"""Base class of tasks, which provide examples, objective, predictions and scores to the stages that train on a task."""

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
Text = Tokenizer | Vocabulary  # a Tokenizer encodes text as ids of tokens, and a Vocabulary as ids of words


class Fold(NamedTuple):
    """One fold of a cross-validation."""

    task: "Task[Any, Any]"  # the task with this fold as test split, and the other folds as training split
    units: Sequence[int] | None = None  # indices of the fold's units among the units of all folds; None without folds


class Task(Measured, Protocol[Example, Prediction]):
    """A kind of task with its data.

    The methods of this class are defaults; each kind of task overrides some of these methods.
    """

    kind: str  # name of the task in tables, such as `tagging` in tagging/test/f1
    inputs: list[Path]  # files that the task reads
    splits: Sequence[str] = SPLITS
    metrics: Sequence[str] = ()  # metrics to compute; if empty, the mean of each numeric column of the units
    selects: str | None  # metric for `patience`, in which higher is better, except for `loss`; None: no early stopping
    convention: Callable[[str], str] | None = None  # rewrites a word for pretrained vectors, see `look_up`
    in_words: bool = False  # whether texts are split into words, for models that read spelling
    has_no_text: bool = False  # whether examples are not texts, such as images
    at_once: int = 64  # number of examples per batch in prediction

    def folds(self) -> list[Fold]:
        """Return the folds of a cross-validation; without cross-validation, return the task as the only fold.

        A separate model is trained and tested for each fold.
        """
        return [Fold(self)]

    @property
    def measured(self) -> Sequence[str]:
        """Return the names of the splits on which the trained model is evaluated."""
        return self.splits[1:]

    def cell(self, split: str) -> str:
        """Return the prefix of the names of a split's metrics, such as tagging/test."""
        return f"{self.kind}/{split}"

    def require(self, model: type[Model], d_predicate: int) -> None:
        """Check that the model is suitable for the task, before any data are read.

        Args:
            d_predicate: size of the model's predicate embedding; 0 if the model has no predicate embedding.

        Raises: UsageError: the model is not suitable.
        """
        ...

    def examples(self, split: str) -> Sequence[Example]:
        """Return the examples of a split.

        Raises: UsageError: data are missing or damaged.
        """
        ...

    def words(self, examples: Sequence[Example]) -> Iterable[Sequence[str]]:
        """Return the texts of examples as lists of words, for models that read words by their spelling."""
        raise NotImplementedError

    def labelled(self, examples: Sequence[Example]) -> tuple[Sequence[Sequence[str]], Sequence[Any]]:
        """Return the texts as lists of words, and the texts' labels, for models that are fitted without gradients."""
        raise NotImplementedError

    def answered(self, example: Example) -> Answered:
        """Return the question and the answer of an example, which are used to find the same example in two splits."""
        return repr(example), None

    def warnings(self, examples: Mapping[str, Sequence[Example]]) -> list[str]:
        """Return warnings about examples, in any of the splits, that make scores unreliable."""
        return []

    def learnt(self) -> dict[str, Any]:
        """Return values that predictions need and that depend on the training examples, such as the set of tags.

        The values must be serialisable as JSON.
        """
        return {}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        """Restore the values that `learnt` returned, instead of reading the training examples."""

    def objective(self, model: Model, text: Text, **head: Any) -> Objective:
        """Return the objective with which the model is trained.

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
        """Return the objective's prediction for each example, in the order of the examples.

        Args:
            encoded: the result of `encode` for the same model.
        """
        places = range(len(encoded.lengths))
        return self.read(encoded, places, predict(objective, encoded, self.at_once))

    def read(self, encoded: Encoded, places: Sequence[int], rows: list[Any]) -> list[Prediction]:
        """Convert the objective's results for some of the examples to predictions.

        Args:
            places: indices of the examples in `encoded`.
            rows: the objective's result for each of these examples.
        """
        return rows

    def units(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> pd.DataFrame:
        """Return one row per unit (the item that metrics average over, such as a sentence) with the unit's scores.

        The rows are used to compute metrics, confidence intervals and significance tests.

        Args:
            predictions: one prediction for each of `examples`, in the same order.
        """
        ...

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Return the units of a split, or of an additional test set whose name is the end of the task's name.

        For example, the task mnli_mismatched selects the units of validation_mismatched.

        Args:
            units: all rows of `units.csv`, including the column `split`.
            task: name of the task; for an additional test set, with the name of the set at the end.
        """
        sets = [name for name in units["split"].unique() if name.startswith(split)]
        sets = [name for name in sets if task.endswith(name.removeprefix(split))]
        return units[units["split"] == max(sets, key=len, default=split)]

    def score(self, units: pd.DataFrame) -> dict[str, float]:
        """Compute the metrics from the units' scores; the result is empty if there are no reference labels."""
        numbers = units.select_dtypes(["number", "bool"]).columns
        return self.values(units, self.metrics or [name for name in numbers if name != "unit"])

    def shown(self, prediction: float) -> str:
        """Return a value of the units' column `prediction` as messages show it."""
        return f"{prediction:g}"

    def validation(self, examples: Sequence[Example], encoded: Encoded) -> Measure:
        """Return a measurement of the validation split, whose results the learning curve shows.

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
            predictions: one prediction for each of `examples`, in the same order.
        """
        return []

    def facts(self, examples: Mapping[str, Sequence[Example]]) -> dict[str, Any]:
        """Return additional entries for the cell's record (the committed summary of a run)."""
        return {}


def require_spelling(model: type[Model], instead: str) -> None:
    """Check that the model reads words by their spelling.

    Raises: UsageError: the model reads tokens; the message suggests to write `instead`.
    """
    if not model.reads_words:
        raise UsageError(f"{model.__name__} does not read words by their spelling; write {instead}")


def require_no_predicate(d_predicate: int) -> None:
    """For a task without predicates, check that the model does not need predicates.

    Raises: UsageError: the model has a predicate embedding.
    """
    if d_predicate:
        raise UsageError(
            f"the task has no predicates, but the model needs them (model.d_predicate={d_predicate}); write "
            "recipe=taggers/bilstm_crf, or task=conll2012_roles"
        )
