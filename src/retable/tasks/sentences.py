"""Tasks that label sentences or pairs of sentences, read from any file with named columns."""

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from annotated_types import Ge

from retable.core import settings
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS, require_length
from retable.data import templates
from retable.data.bucketed import Encoded, at_once
from retable.data.examples import encoded
from retable.metrics.labelled import OF_CLASSES, OF_SCORES, Labelled
from retable.models.base import EncoderDecoder, Estimated, Model
from retable.objectives.at_once import AtOnce
from retable.objectives.classification import Classification, require_summary
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.regression import Regression
from retable.tasks.base import Fold, Task, Text, require_no_predicate
from retable.tasks.labels import Classes, Scores, missing_classes
from retable.tasks.reading import ends_of_sequences, pack
from retable.tasks.table import Row, Table, read_by_class, read_table
from retable.tasks.written import Answers, plain
from retable.tokenizers.tokenizer import Tokenizer

FoldCount = Annotated[int, Ge(2)]
SEED = 0  # seed for the random choice of held-out examples; constant, so that all runs have the same split


class Example(NamedTuple):
    """A labelled sentence or pair of sentences."""

    sentences: tuple[str, ...]  # one or two sentences, with single spaces between words
    label: float | None  # index of the class, or the score; None if the file has no column of labels


def _drawn(labels: Sequence[float | None], share: float, classes: bool) -> set[int]:
    """Draw a random share of the examples; if labels are classes, draw the same share of each class.

    Returns: the indices of the drawn examples.
    """
    order = np.random.default_rng(SEED).permutation(len(labels)).tolist()
    if classes:  # sorted by class, because choosing every k-th example then draws the same share of each class
        order.sort(key=lambda i: -1.0 if (label := labels[i]) is None else label)
    return {order[i] for i in range(len(order)) if int((i + 1) * share) > int(i * share)}


class SentenceTask(Labelled, Task[Example, float]):
    """Classification or regression of sentences or pairs of sentences.

    The unit of evaluation is an example, with its label and the prediction.

    A label is the index of a class, or a score. The value `labels.none` is a prediction that is always wrong. An
    encoder-decoder reads an example as a prompt and writes the label.

    Args:
        name: name of the task in prompts and tables.
        files: the file of each split: train and validation, and optionally test and additional sets, such as
            validation_mismatched. The value null removes a split. If the value for validation is a number, this share
            of the training examples is held out: the same examples in all runs, and the same share of each class.
            Instead of a file name, the value may be a mapping with the file's `path`, or with `by_class`, a mapping
            from each label to a file of sentences. All other keys of this mapping override settings of `form` for this
            file.
        sentences: name of the column with the sentences; for pairs of sentences, the names of two columns.
        label: name of the column with the labels, or a list of possible names. In a test set, the column with the
            labels may be missing.
        metrics: metrics of the task, the most important first.
        labels: the classes, see `Classes`, or "all": the labels in the file of the training examples, sorted; set
            either `labels` or `scores`.
        scores: if labels are numbers, the lowest and the highest score.
        symmetric: whether the order of the two sentences of a pair has no meaning.
        form: settings that are passed to `read` for all files.
        read: function that reads a file as a table.
        prompt: for encoder-decoders, a mapping from each column to its name in the prompt, in the order of the prompt;
            if None, the names of the columns are used.
        answers: the texts that an encoder-decoder writes for the classes, in the order of the classes; if None, the
            names of the classes are used.
        folds: number of folds of a cross-validation on the file `train`. Folds have nearly equal sizes and the same
            shares of the classes. Each example is tested once, with a model that was trained on all folds except the
            example's fold.
        seed: seed for the random division into folds; systems with the same seed have the same folds.
    """

    at_once = 256
    in_words = True

    def __init__(
        self,
        name: str,
        files: Mapping[str, str | float | Mapping[str, Any] | None],
        sentences: Sequence[str],
        label: str | Sequence[str],
        metrics: Sequence[str],
        labels: Literal["all"] | Sequence[object] | Mapping[object, object] | None = None,
        scores: Sequence[float] | None = None,
        symmetric: bool = False,
        form: Mapping[str, Any] | None = None,
        read: Callable[..., Table] = read_table,
        prompt: Mapping[str, str] | None = None,
        answers: Sequence[str] | None = None,
        folds: FoldCount | None = None,
        seed: settings.Seed = 0,
    ):
        self.kind = name
        self._n_folds, self._seed = folds, seed
        self._of_fold: dict[str, list[Example]] = {}  # training and test examples, if this task is a fold
        if len(sentences) not in (1, 2):
            raise UsageError(f"task.sentences={list(sentences)} has {len(sentences)} columns; write one or two")
        if (labels is None) == (scores is None):
            raise UsageError(
                "a task needs either classes or scores; write task.labels=[…] or task.scores=[lowest, highest]"
            )
        self.sentences, self.metrics = list(sentences), list(metrics)
        self._answers = answers
        self.label = [label] if isinstance(label, str) else list(label)
        if not self.label:
            raise UsageError("task.label is empty; write the name of the column that contains the labels")
        if scores is not None and (len(scores) != 2 or not scores[0] < scores[1]):
            raise UsageError(f"task.scores={list(scores)} is not a range; write [lowest, highest]")
        self._labels: Classes | Scores | None = None  # None: read from the training examples when first used
        if labels != "all":
            self._labels = Classes(labels) if labels is not None else Scores(*scores or ())
        self._reads_labels = labels == "all"
        known = [name for name in (OF_CLASSES if labels is not None else OF_SCORES) if self._fits(name)]
        if labels is not None and "f1" in self.metrics and "f1" not in known:
            raise UsageError(
                f"task.metrics={self.metrics}: f1 needs two labels, with the one to score last; write, for example, "
                "task.labels=[bad,good], or remove f1"
            )
        if not self.metrics or not set(self.metrics) <= set(known):
            raise UsageError(
                f"task.metrics={self.metrics} do not fit the labels; write one or more of {', '.join(known)}"
            )
        self.symmetric = symmetric
        self._prompt = dict(prompt or zip(sentences, sentences, strict=True))
        if set(self._prompt) != set(sentences):
            raise UsageError(
                f"task.prompt has names for {list(self._prompt)}; write a name for each of {self.sentences}"
            )
        self._read = read
        files = {split: file for split, file in files.items() if file is not None}
        for split in SPLITS[: 1 if folds else 2]:
            if split not in files:
                raise UsageError(f"a task needs training and validation examples; write task.files.{split}=FILE")
        share = files.get("validation")
        if folds and (of_files := {*files} - {"train"} - ({"validation"} if isinstance(share, int | float) else set())):
            raise UsageError(
                f"task.folds={folds} makes test sets only from files.train; write task.files.{min(of_files)}=null"
            )
        self._held_out = float(share) if isinstance(share, int | float) else 0.0
        if isinstance(share, int | float) and not 0 < share < 1:
            raise UsageError(
                f"task.files.validation={share} is not a share of the training examples; write, for example, 0.1"
            )
        self._files = {
            split: dict(form or {}) | ({"path": None, **file} if isinstance(file, Mapping) else {"path": file})
            for split, file in files.items()
            if split != "validation" or not self._held_out
        }
        for split, file_form in self._files.items():
            if by_class := file_form.get("by_class"):
                file_form["path"] = next(iter(by_class.values()))
            if not isinstance(path := file_form["path"], str) or not Path(path).name:
                raise UsageError(f"task.files.{split}={settings.shown(path)} is not a file; write its path")

    def _fits(self, metric: str) -> bool:
        return metric != "f1" or (self._labels is not None and len(self._labels.names) == 2)

    @property
    def labels(self) -> Classes | Scores:
        """Return the classes, or the range of scores."""
        if self._labels is None:
            self._labels = Classes(self._labels_in_file())
        return self._labels

    def _labels_in_file(self) -> list[str]:
        """Return the different labels of the training file, sorted.

        Raises: UsageError: a label is empty, the file has no rows, or the column has a different value in most rows, so
            it is not a column of labels.
        """
        path, table = self._table("train")
        column = self._label_column(path, table.columns)
        counts = Counter(self._label_text(path, row, column) for row in table.rows)
        if not counts:
            raise UsageError(f"{path} has no examples; the train split needs one or more")
        if len(counts) > max(counts.total() / 2, 2):
            raise UsageError(
                f"{path}: {counts.total()} rows have {len(counts)} different values in column {column!r}, too many for "
                "labels; set task.label to the column of the labels"
            )
        return sorted(counts)

    def learnt(self) -> dict[str, Any]:
        return {"labels": [*self.labels.names]} if self._reads_labels else {}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        self._labels = Classes(learnt["labels"])

    @property
    def selects(self) -> str:  # type: ignore[override]
        return self.metrics[0]

    @property
    def _pairs(self) -> bool:
        return len(self.sentences) == 2

    def cell(self, split: str) -> str:
        base, _, kind = split.partition("_")
        return f"{'_'.join(filter(None, (self.kind, kind)))}/{base}"

    def require(self, model: type[Model], d_predicate: int) -> None:
        if issubclass(model, Estimated):
            if model.tags or self._pairs or isinstance(self.labels, Scores):
                needs = "tags words" if model.tags else "gives single sentences a class"
                raise UsageError(f"{model.__name__} {needs}; write recipe=encoders/bilstm")
            return
        if issubclass(model, EncoderDecoder):
            return
        require_summary(model, self._pairs)
        require_no_predicate(d_predicate)
        if self._answers is not None:
            raise UsageError(f"{model.__name__} cannot write labels; remove answers=, or write recipe=t5/t5_text")

    def objective(  # type: ignore[override]
        self,
        model: Model,
        text: Text,
        *,
        dropout: float,
        auxiliary: float,
        d_hidden: int | None,
        pooling: str | None,
        tie: bool,
    ) -> Classification | LabelsAsText | AtOnce:
        """Return the objective with which the model is trained; the arguments are settings of the output head.

        The setting `tie` is only used for models that write labels as text, see `TextToText`.

        Raises: UsageError: a setting is for a head, but the model writes labels as text; or the tokenizer cannot encode
            a label.
        """
        if isinstance(model, Estimated):
            return AtOnce(model)
        head: dict[str, Any] = {"auxiliary": auxiliary, "d_hidden": d_hidden, "pooling": pooling}
        if isinstance(model, EncoderDecoder):
            for name, value in head.items():
                if value:
                    raise UsageError(
                        f"{type(model).__name__} writes labels as text, without a head; remove {name}={value}"
                    )
            assert isinstance(text, Tokenizer)
            return self._writer(model, text, tie)
        if isinstance(self.labels, Classes):
            return Classification(model, len(self.labels.names), dropout, pairs=self._pairs, **head)
        return Regression(model, self.labels.low, self.labels.high, dropout, pairs=self._pairs, **head)

    def _writer(self, model: EncoderDecoder, tokenizer: Tokenizer, tie: bool) -> LabelsAsText:
        answers = Answers(self.labels, self._answers)
        ids = tokenizer.encode_batch(answers.texts, special=True)
        for written, back in zip(answers.texts, tokenizer.decode_batch(ids), strict=True):
            if plain(written) != plain(back):
                raise UsageError(
                    f"the tokenizer turns the label {written!r} into {back!r}; use a subword tokenizer, "
                    "tokenizer=unigram or tokenizer=bpe, or write another text for each of "
                    f"{', '.join(self.labels.names) or 'the labels'}, as in answers=[bad,good]"
                )
        end = ends_of_sequences(model, tokenizer)[1]

        def read(written: list[int]) -> float:
            return answers.label(tokenizer.decode(written[: written.index(end)])) if end in written else answers.none

        table = model.input_embedding  # a checkpoint's embedding may have more rows than the tokenizer has tokens
        vocab_size = tokenizer.vocab_size if table is None else table.num_embeddings
        return LabelsAsText(model, vocab_size, tie, [[*written, end] for written in ids], read)

    def encode(self, model: Model, text: Text, examples: Sequence[Example]) -> Encoded:
        if isinstance(model, Estimated):
            return at_once(self.words(examples))
        labels = [0 if each.label is None else each.label for each in examples]
        sentences = [each.sentences for each in examples]
        if isinstance(model, EncoderDecoder):
            answers = Answers(self.labels, self._answers)
            labels = [0 if each.label is None else answers.place(each.label) for each in examples]
            sentences = [(templates.prompt(self.kind, self.named(each)),) for each in examples]
        return encoded(pack(model, text, sentences, self.symmetric), labels)

    def units(self, examples: Sequence[Example], predictions: Sequence[float]) -> pd.DataFrame:
        labels = [each.label for each in examples]
        return pd.DataFrame({"unit": range(len(labels)), "label": labels, "prediction": predictions})

    def shown(self, prediction: float) -> str:
        if prediction == self.labels.none:
            return "a text that is not a label"
        if not isinstance(self.labels, Classes):
            return super().shown(prediction)
        return repr(self.labels.names[int(prediction)])

    def validated(self, units: pd.DataFrame) -> dict[str, float]:
        """Compute the metrics for the learning curve; for classes, add accuracy and Matthews correlation."""
        metrics = ["accuracy", "matthews", *self.metrics] if isinstance(self.labels, Classes) else self.metrics
        return self.values(units, metrics)

    def words(self, examples: Sequence[Example]) -> list[list[str]]:
        return [sentence.split() for sentence in sentences_of(examples)]

    def labelled(self, examples: Sequence[Example]) -> tuple[list[list[str]], list[int]]:
        return self.words(examples), [int(each.label) for each in examples if each.label is not None]

    def named(self, example: Example) -> dict[str, str]:
        """Return a mapping from names in the prompt to an example's sentences, in the order of the prompt."""
        texts = dict(zip(self.sentences, example.sentences, strict=True))
        return {name: texts[column] for column, name in self._prompt.items()}

    @property
    def splits(self) -> list[str]:  # type: ignore[override]
        """Return the names of the splits: train, validation and all additional splits."""
        if self._n_folds:
            return ["train", *(["validation"] if self._held_out else []), "test"]
        return [*dict.fromkeys([*SPLITS[:2], *self._files])]

    @property
    def measured(self) -> list[str]:
        return ["test"] if self._n_folds else self.splits[1:]

    @property
    def inputs(self) -> list[Path]:  # type: ignore[override]
        """Return the paths of all files of the task."""
        names = ("path", "gold")
        listed = [file[name] for file in self._files.values() for name in names if name in file]
        listed += [path for file in self._files.values() for path in file.get("by_class", {}).values()]
        return [Path(path) for path in dict.fromkeys(listed)]

    def folds(self) -> list[Fold]:
        if not self._n_folds:
            return super().folds()
        examples = self._read_examples("train")
        order = np.random.default_rng(self._seed).permutation(len(examples)).tolist()
        if isinstance(self.labels, Classes):  # sorting by class divides the examples of a class evenly among the folds
            order.sort(key=lambda i: examples[i].label)
        folds = []
        for number in range(self._n_folds):
            tested = {*order[number :: self._n_folds]}
            fold = copy.copy(self)
            fold._of_fold = {"train": [], "test": []}
            for i, example in enumerate(examples):
                fold._of_fold["test" if i in tested else "train"].append(example)
            folds.append(Fold(fold, sorted(tested)))
        return folds

    def examples(self, split: str) -> list[Example]:
        """Return the examples of a split, in the order of its file.

        Raises: UsageError: a file, column or value is missing, a file is damaged, a label is unknown, or the split is
            empty.
        """
        file = "train" if self._held_out and split == "validation" else split
        examples = self._of_fold[file] if self._of_fold else self._read_examples(file)
        if self._held_out and split in SPLITS[:2]:
            held_out = _drawn([example.label for example in examples], self._held_out, isinstance(self.labels, Classes))
            keep = split == "validation"
            examples = [example for i, example in enumerate(examples) if (i in held_out) == keep]
        if not examples:
            raise UsageError(f"{self._name(split)} has no examples; the {split} split needs one or more")
        return examples

    def answered(self, example: Example) -> Answered:
        """Return the sentences and the label; the sentences of a symmetric pair are sorted, to ignore their order."""
        return tuple(sorted(example.sentences)) if self.symmetric else example.sentences, example.label

    def warnings(self, examples: Mapping[str, Sequence[Example]]) -> list[str]:
        if not isinstance(self.labels, Classes):
            return []
        drawn = f"{self._held_out:g} of {self._files['train']['path']}"
        files = {split: self._name(split) if split in self._files else drawn for split in examples}
        labels = {f"{split} ({files[split]})": [each.label for each in rows] for split, rows in examples.items()}
        return missing_classes(self.labels.names, labels)

    def _name(self, split: str) -> str:
        return str(self._files[split]["path"]) if split in self._files else f"task.files.{split}={self._held_out:g}"

    def _read_examples(self, split: str) -> list[Example]:
        path, table = self._table(split)
        unlabelled = split.startswith("test") and not {*self.label} & {*table.columns}
        for column in self.sentences:
            _require_column(path, table.columns, column)
        label_column = "" if unlabelled else self._label_column(path, table.columns)
        examples = []
        for row in table.rows:
            label = None
            if not unlabelled:
                text = self._label_text(path, row, label_column)
                if self._reads_labels and text not in self.labels.names:
                    raise UsageError(
                        f"{path}, {row.place}: label {text!r} does not occur in the training file, "
                        f"{self._files['train']['path']}, which has {', '.join(map(repr, self.labels.names))}; "
                        "correct the label, remove the row, or add rows with this label to the training file"
                    )
                try:
                    label = self.labels.read(text)
                except ValueError as error:
                    raise UsageError(f"{path}, {row.place}: {error}") from None
                if label is None:
                    continue
            sentences = [_value(path, row, column).split() for column in self.sentences]
            require_length(f"{path}, {row.place}", max(map(len, sentences)))
            examples.append(Example(tuple(map(" ".join, sentences)), label))
        return examples

    def _table(self, split: str) -> tuple[Path, Table]:
        """Open the file of a split; return its path and its table."""
        form = dict(self._files[split])
        path, by_class = Path(form.pop("path")), form.pop("by_class", None)
        if path.parts[0] == "outputs":
            require(path)
        if by_class:
            return path, read_by_class({label: Path(file) for label, file in by_class.items()}, **form)
        self._require_settings(form)
        return path, self._read(path, **form)

    def _label_text(self, path: Path, row: Row, column: str) -> str:
        """Return the text of a row's label.

        Raises: UsageError: the value is missing; or it is empty, and the classes are the labels in the training file.
        """
        text = _value(path, row, column).strip()
        if self._reads_labels and not text:
            raise UsageError(f"{path}, {row.place} has an empty {column!r}; write a label, or remove the row")
        return text

    def _label_column(self, path: Path, columns: Sequence[str]) -> str:
        return _require_column(path, columns, next((name for name in self.label if name in columns), self.label[0]))

    def _require_settings(self, form: Mapping[str, Any]) -> None:
        parameters = inspect.signature(self._read).parameters
        known = {name: each.annotation for name, each in parameters.items() if name != "path"}
        for name, value in form.items():
            if name not in known:
                raise UsageError(f"unknown setting task.form.{name}; write one of {', '.join(known) or 'none'}")
            settings.require(value, known[name], f"task.form.{name}")


def _require_column(path: Path, columns: Sequence[str], column: str) -> str:
    if column not in columns:
        raise UsageError(
            f"{path} has no column {column!r}; set task.sentences and task.label to its columns: "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    return column


def _value(path: Path, row: Row, column: str) -> str:
    value = row.fields.get(column)
    if value is None:
        raise UsageError(f"{path}, {row.place} has no {column!r}; add it, or remove the row")
    return value


def sentences_of(examples: Sequence[Example]) -> Iterator[str]:
    """Return an iterator over the sentences of the examples, in order."""
    return (sentence for example in examples for sentence in example.sentences)
