"""Tasks that give a label to a sentence, or to a pair of them, from any file whose columns have names."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retable.core import settings
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS, require_length
from retable.data import layouts
from retable.data.bucketed import Encoded
from retable.data.examples import encoded
from retable.metrics.labelled import OF_CLASSES, OF_SCORES, Labelled
from retable.models.base import EncoderDecoder, Model
from retable.objectives.classification import Classification, require_summary
from retable.objectives.labels_as_text import LabelsAsText
from retable.objectives.regression import Regression
from retable.tasks.base import Task, Text, require_no_predicate
from retable.tasks.labels import Classes, Scores, missing_classes
from retable.tasks.reading import ends_of_sequences, lay_out
from retable.tasks.table import Row, Table, read_table
from retable.tasks.written import Answers, plain
from retable.tokenizers.tokenizer import Tokenizer

SEED = 0  # of the examples that are held out: the same for all that train, whatever their seed


class Example(NamedTuple):
    sentences: tuple[str, ...]  # one, or the two of a pair, words parted by single spaces
    label: float | None  # its class's place, or its score; None where the file doesn't tell


def _drawn(labels: Sequence[float | None], share: float, classes: bool) -> set[int]:
    """Return the places of a share of examples that are drawn at random, where labels are classes of each as many."""
    order = np.random.default_rng(SEED).permutation(len(labels)).tolist()
    if classes:  # the examples of a class one after another, so that even steps take the same share of each
        order.sort(key=lambda i: -1.0 if (label := labels[i]) is None else label)
    return {order[i] for i in range(len(order)) if int((i + 1) * share) > int(i * share)}


class SentenceTask(Labelled, Task[Example, float]):
    """A task and the files of its splits. A unit is an example, with the places of its class and of the predicted one,
    or its score and the predicted one; `labels.none` is always wrong. An encoder-decoder reads it as a prompt and
    writes the label.

    name: by which prompts and tables call it.
    files: split → its file: train, validation, and where there are any test and further sets, such as
        validation_mismatched; or in place of a file a mapping with its `path` and settings of `form` that are its own.
        None: no such split. A number as validation: so large a share of the training examples is drawn, the same
        for all that train, and held out from them; of each class as large a share.
    sentences: the column of the sentences, or the two columns of the pairs.
    label: the column of the labels, or some names of which a file has one. A test set may be without it.
    metrics: those that the task is judged by, the first of them first.
    labels: the classes, see `Classes`; or
    scores: the lowest and the highest number, where the label is a number.
    symmetric: whether a pair's order means nothing.
    form: how the files are read, see `read`.
    read: what reads them.
    prompt: to a model that reads an example as one text, what each column is called there, in the order of that text;
        None: by their own names.
    answers: what such a model writes for the classes, in their order; None: their names.
    """

    at_once = 256

    def __init__(
        self,
        name: str,
        files: Mapping[str, str | float | Mapping[str, Any] | None],
        sentences: Sequence[str],
        label: str | Sequence[str],
        metrics: Sequence[str],
        labels: Sequence[object] | Mapping[object, object] | None = None,
        scores: Sequence[float] | None = None,
        symmetric: bool = False,
        form: Mapping[str, Any] | None = None,
        read: Callable[..., Table] = read_table,
        prompt: Mapping[str, str] | None = None,
        answers: Sequence[str] | None = None,
    ):
        self.kind = name
        if len(sentences) not in (1, 2):
            raise UsageError(f"task.sentences={list(sentences)} names {len(sentences)} columns; write one, or two")
        if (labels is None) == (scores is None):
            raise UsageError("a task has classes or scores; write task.labels=[…] or task.scores=[lowest, highest]")
        self.sentences, self.metrics = list(sentences), list(metrics)
        self._answers = answers
        self.label = [label] if isinstance(label, str) else list(label)
        if not self.label:
            raise UsageError("task.label names no column; write the one of the labels")
        if scores is not None and (len(scores) != 2 or not scores[0] < scores[1]):
            raise UsageError(f"task.scores={list(scores)} are no range; write [lowest, highest]")
        self.labels = Classes(labels) if labels is not None else Scores(*scores or ())
        known = [name for name in (OF_CLASSES if labels is not None else OF_SCORES) if self._fits(name)]
        if not self.metrics or not set(self.metrics) <= set(known):
            raise UsageError(f"task.metrics={self.metrics}: for these labels write some of {', '.join(known)}")
        self.symmetric = symmetric
        self._prompt = dict(prompt or zip(sentences, sentences, strict=True))
        if set(self._prompt) != set(sentences):
            raise UsageError(f"task.prompt names {list(self._prompt)}; write a name for each of {self.sentences}")
        self._read = read
        files = {split: file for split, file in files.items() if file is not None}
        for split in SPLITS[:2]:
            if split not in files:
                raise UsageError(
                    f"a task needs examples to learn from and to validate on; write task.files.{split}=FILE"
                )
        share = files["validation"]
        self._held_out = float(share) if isinstance(share, int | float) else 0.0
        if isinstance(share, int | float) and not 0 < share < 1:
            raise UsageError(
                f"task.files.validation={share} is no share of the training examples; write one such as 0.1"
            )
        self._files = {
            split: dict(form or {}) | ({"path": None, **file} if isinstance(file, Mapping) else {"path": file})
            for split, file in files.items()
            if split != "validation" or not self._held_out
        }
        for split, its in self._files.items():
            if not isinstance(its["path"], str) or not Path(its["path"]).name:
                raise UsageError(f"task.files.{split}={settings.shown(its['path'])} is no file; write its path")

    def _fits(self, metric: str) -> bool:
        return metric != "f1" or len(self.labels.names) == 2

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
        if issubclass(model, EncoderDecoder):
            return
        require_summary(model, self._pairs)
        require_no_predicate(d_predicate)
        if self._answers is not None:
            raise UsageError(
                f"{model.__name__} has a head for its labels; leave answers= out, or take recipe=t5/t5_text"
            )

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
    ) -> Classification | LabelsAsText:
        """The settings of a head; `tie` is of a model that writes, see `TextToText`. UsageError where the tokenizer
        can't write a label."""
        assert isinstance(text, Tokenizer)
        head: dict[str, Any] = {"auxiliary": auxiliary, "d_hidden": d_hidden, "pooling": pooling}
        if isinstance(model, EncoderDecoder):
            for name, value in head.items():
                if value:
                    raise UsageError(
                        f"{type(model).__name__} writes its labels, and has no head; leave {name}={value} out"
                    )
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
                    f"the tokenizer can't write the label {written!r}, of which it makes {back!r}; take one that "
                    "spells words, tokenizer=unigram or tokenizer=bpe, or give each class a text that it can write, as "
                    "in answers=[bad,good]"
                )
        end = ends_of_sequences(model, tokenizer)[1]

        def read(found: list[int]) -> float:
            return answers.label(tokenizer.decode(found[: found.index(end)])) if end in found else answers.none

        table = model.input_embedding  # a checkpoint's may have rows behind those of the tokenizer
        vocab_size = tokenizer.vocab_size if table is None else table.num_embeddings
        return LabelsAsText(model, vocab_size, tie, [[*written, end] for written in ids], read)

    def encode(self, model: Model, text: Text, examples: Sequence[Example]) -> Encoded:
        assert isinstance(text, Tokenizer)
        labels = [0 if each.label is None else each.label for each in examples]
        sentences = [each.sentences for each in examples]
        if isinstance(model, EncoderDecoder):
            answers = Answers(self.labels, self._answers)
            labels = [0 if each.label is None else answers.place(each.label) for each in examples]
            sentences = [(layouts.prompt(self.kind, self.named(each)),) for each in examples]
        return encoded(lay_out(model, text, sentences, self.symmetric), labels)

    def units(self, examples: Sequence[Example], predictions: Sequence[float]) -> pd.DataFrame:
        labels = [each.label for each in examples]
        return pd.DataFrame({"unit": range(len(labels)), "label": labels, "prediction": predictions})

    def validated(self, units: pd.DataFrame) -> dict[str, float]:
        """Of classes always accuracy and matthews too."""
        told = ["accuracy", "matthews", *self.metrics] if isinstance(self.labels, Classes) else self.metrics
        return self.values(units, told)

    def named(self, example: Example) -> dict[str, str]:
        """The sentences by the names that `prompt` gives them, in its order."""
        texts = dict(zip(self.sentences, example.sentences, strict=True))
        return {name: texts[column] for column, name in self._prompt.items()}

    @property
    def splits(self) -> list[str]:  # type: ignore[override]
        """train, validation, and what else there is."""
        return [*dict.fromkeys([*SPLITS[:2], *self._files])]

    @property
    def inputs(self) -> list[Path]:  # type: ignore[override]
        """All files."""
        return [Path(file[name]) for file in self._files.values() for name in ("path", "gold") if name in file]

    def examples(self, split: str) -> list[Example]:
        """The examples of a split, in the order of its file.

        Raises UsageError where a file is missing or broken, where a column is not there or has no value, for a label
        that is none of the task's, and for a split without examples.
        """
        examples = self._read_examples("train" if self._held_out and split == "validation" else split)
        if self._held_out and split in SPLITS[:2]:
            held_out = _drawn([example.label for example in examples], self._held_out, isinstance(self.labels, Classes))
            wanted = split == "validation"
            examples = [example for i, example in enumerate(examples) if (i in held_out) == wanted]
        if not examples:
            raise UsageError(f"{self._name(split)} holds no examples; the {split} split needs one at least")
        return examples

    def answered(self, example: Example) -> Answered:
        """The order of a symmetric pair does not count."""
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
        form = dict(self._files[split])
        path = Path(form.pop("path"))
        if path.parts[0] == "outputs":
            require(path)
        self._require_settings(form)
        table = self._read(path, **form)
        label_column = next((name for name in self.label if name in table.columns), self.label[0])
        unlabelled = split.startswith("test") and label_column not in table.columns
        for column in self.sentences if unlabelled else [*self.sentences, label_column]:
            if column not in table.columns:
                raise UsageError(
                    f"{path} has no column {column!r}; it has {', '.join(map(repr, table.columns)) or 'none'}: set "
                    "task.sentences and task.label to columns that it has"
                )
        examples = []
        for row in table.rows:
            label = None
            if not unlabelled:
                try:
                    label = self.labels.read(_value(path, row, label_column).strip())
                except ValueError as error:
                    raise UsageError(f"{path}, {row.place}: {error}") from None
                if label is None:
                    continue
            sentences = [_value(path, row, column).split() for column in self.sentences]
            require_length(f"{path}, {row.place}", max(map(len, sentences)))
            examples.append(Example(tuple(map(" ".join, sentences)), label))
        return examples

    def _require_settings(self, form: Mapping[str, Any]) -> None:
        parameters = inspect.signature(self._read).parameters
        known = {name: each.annotation for name, each in parameters.items() if name != "path"}
        for name, value in form.items():
            if name not in known:
                raise UsageError(f"task.form has no {name}; it may have {', '.join(known) or 'nothing'}")
            settings.require(value, known[name], f"task.form.{name}")


def _value(path: Path, row: Row, column: str) -> str:
    value = row.fields.get(column)
    if value is None:
        raise UsageError(f"{path}, {row.place} has no {column!r}; give it one, or take the row out")
    return value


def sentences_of(examples: Sequence[Example]) -> Iterator[str]:
    """Each sentence of the examples, in their order."""
    return (sentence for example in examples for sentence in example.sentences)
