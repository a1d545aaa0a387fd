"""Use of systems that were trained on a task.

Dimensions: n texts, C classes.
"""

import inspect
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from retable.core import settings
from retable.core.artifacts import read_json, require
from retable.core.errors import UsageError, UsageWarning
from retable.corpora.columns import TaggedSentence, read_tagged
from retable.corpora.coreference import Document
from retable.corpora.multiple_choice import Choice
from retable.corpora.squad import Answer, Question
from retable.corpora.summaries import Summarised
from retable.data.bucketed import Encoded, in_order_of_length, on_device
from retable.data.questions import in_words
from retable.data.spelling import Vocabulary
from retable.data.summaries import in_sentences, sentences_of
from retable.evaluation.source_attention import attends, attention_to_source
from retable.evaluation.translation import translate
from retable.generation.strategy import Strategy
from retable.inference.build import build_model
from retable.inference.loaded import Loaded, listed, warn_of_cut, warn_of_unknown
from retable.inference.systems import read_config
from retable.inference.texts import read_text
from retable.models.base import Estimated
from retable.objectives.base import Objective
from retable.objectives.classification import Classification
from retable.objectives.regression import Regression
from retable.objectives.translation import Translation
from retable.tasks.base import Task, Text
from retable.tasks.choices import ChoiceTask
from retable.tasks.clusters import CoreferenceTask
from retable.tasks.labels import Classes
from retable.tasks.questions import QuestionTask, answers_of
from retable.tasks.sentences import Example, SentenceTask
from retable.tasks.summaries import SummaryTask
from retable.tasks.table import Table, read_table
from retable.tasks.tagged import TaggingTask
from retable.tasks.translation import Pair, TranslationTask
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import load_weights


class TaskSystem(Loaded):
    """A system trained on a task.

    Models that read the spelling of words also accept words that did not occur in training.
    """

    task: Any  # a task of the kind that the subclass supports
    _module: Objective

    def __init__(self, folder: Path, task: Task[Any, Any]):
        config = read_config(folder)
        self.task, self._text = task, read_text(folder)
        if (learnt := folder / "learnt.json").exists():
            task.recall(read_json(learnt))
        super().__init__(folder, self._objective(config))
        weights = require(folder / "model.safetensors")
        if isinstance(model := self._module.model, Estimated):
            model.load(weights)
        else:
            load_weights(self._module, weights)

    @property
    def objective(self) -> Objective:
        """The trained objective with its model."""
        return self._module

    @property
    def text(self) -> Text:
        """The tokenizer; for a model that reads words letter by letter, the vocabulary of words."""
        return self._text

    def _objective(self, config: Any) -> Objective:
        model = build_model(config, self._text)
        return self.task.objective(model, self._text, **config["head"]).eval()

    def _predict(self, examples: Sequence[Any]) -> list[Any]:
        try:
            json.dumps(examples, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError(
                "the text contains a lone surrogate, half of a character; read the text as UTF-8"
            ) from None
        if isinstance(self._text, Vocabulary) and not isinstance(self._module.model, Estimated):
            self._learn_to_spell(word for sentence in self.task.words(examples) for word in sentence)
        return self.task.predict(self._module, self._encoded(examples)) if examples else []

    def _encoded(self, examples: Sequence[Any]) -> Any:
        if isinstance(self._text, Tokenizer):
            warn_of_unknown(self._text.source, _strings(examples))
        encoded = self.task.encode(self._module.model, self._text, examples)
        if isinstance(encoded, Encoded):
            warn_of_cut(encoded.truncated, len(examples), f"the model's max_length={self._module.model.max_length}")
        return encoded

    def _learn_to_spell(self, words: Iterable[str]) -> None:
        """Rebuild the model for a vocabulary with more words.

        The weights stay the same, because they belong to letters and not to words.
        """
        assert isinstance(self._text, Vocabulary)
        more = self._text.with_words(words)
        if len(more.words) > len(self._text.words):
            before, self._text = self._module, more
            self._module = self._objective(self.config).to(self.device)
            self._module.load_state_dict(before.state_dict())


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in an example, which consists of nested tuples and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


class Classifier(TaskSystem):
    """Assigns a label or a score to sentences or pairs of sentences."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; empty for tasks with numeric scores."""
        return tuple(self.task.labels.names)

    @property
    def can(self) -> tuple[str, ...]:
        return ("classify", "predict", *(("probabilities",) if self._gives_classes() else ()))

    def classify(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[str] | list[float]:
        """Return the label of each sentence or pair, or its score if the task has numeric scores."""
        predictions = self._predict(self._examples(texts))
        if not isinstance(self.task.labels, Classes):
            return [float(each) for each in predictions]
        names = [*self.labels, ""]  # "" if the model writes labels as text, and its text is not a label
        return [names[int(each)] for each in predictions]

    @torch.inference_mode()
    def probabilities(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """Return class probabilities (n, C), in the order of `labels`.

        Raises: UsageError: the task has numeric scores, or the model writes its labels as text.
        """
        if not self._gives_classes():
            raise UsageError(f"{self.folder} does not compute probabilities of classes; call classify instead")
        examples = self._examples(texts)
        rows = np.empty((len(examples), len(self.labels)), np.float32)
        if not examples:
            return rows
        for places, batch in in_order_of_length(self._encoded(examples), self.task.at_once):
            rows[places] = self._module(on_device(self.device, batch)).float().softmax(dim=1).cpu().numpy()
        return rows

    def predict(self, file: str | Path) -> pd.DataFrame:
        """Read a file with the columns of the task's sentences, and return its rows with predictions.

        The format follows from the file's suffix: delimited text, JSON lines or parquet. A file without a header is
        read like the task's test set.

        Returns: the file's columns, and the column `predicted` with the label or score. If the head computes
            probabilities, there are also the columns `probability` (of the predicted label) and `p(NAME)` (of each
            class, NAME).

        Raises: UsageError: the file is missing, damaged or empty, lacks a column, or has a column with the name of a
            column of predictions.
        """
        path = Path(file)
        table = self._table(path)
        if missing := [name for name in self.task.sentences if name not in table.columns]:
            existing = ", ".join(map(repr, table.columns)) or "none"
            raise UsageError(f"{path} has no column {missing[0]!r}, which {self.folder} reads; its columns: {existing}")
        rows = list(table.rows)
        if not rows:
            raise UsageError(f"{path} has no rows; write one row per text")
        for row in rows:
            if missing := [name for name in self.task.sentences if row.fields.get(name) is None]:
                raise UsageError(f"{path}, {row.place} has no {missing[0]!r}; add a value, or remove the row")
        texts: Any = [tuple(str(row.fields[name]) for name in self.task.sentences) for row in rows]
        results = pd.DataFrame({"predicted": self.classify(texts)})
        if self._gives_classes():
            with warnings.catch_warnings():  # `classify` has already warned about these texts
                warnings.simplefilter("ignore", UsageWarning)
                of_classes = self.probabilities(texts)
            results["probability"] = of_classes[
                range(len(rows)), [self.labels.index(name) for name in results["predicted"]]
            ]
            shares = pd.DataFrame(of_classes, columns=[f"p({name})" for name in self.labels])
            results = pd.concat([results, shares], axis=1)
        read = pd.DataFrame([row.fields for row in rows], dtype=object)
        if twice := [name for name in results if name in read]:
            raise UsageError(f"{path} has a column {twice[0]!r}, the name of a column of predictions; rename it")
        return pd.concat([read, results], axis=1)

    def _table(self, path: Path) -> Table:
        task = self.config["task"]
        file = task["files"].get("test") or task["files"]["train"]
        read = settings.build(task["read"], "task.read") if task.get("read") else read_table
        known = inspect.signature(read).parameters
        form = dict(task.get("form") or {}) | (dict(file) if isinstance(file, Mapping) else {})
        form = {name: value for name, value in form.items() if name in known and name not in ("path", "gold")}
        # The user's file may have a header even if the task's file has none.
        if task.get("read") or {"columns", "pattern"} & form.keys():
            try:
                table = read_table(path)
                if set(self.task.sentences) <= set(table.columns):
                    return table
            except UsageError:  # the file has no header
                pass
        return read(path, **form)

    def _gives_classes(self) -> bool:
        return isinstance(self._module, Classification) and not isinstance(self._module, Regression)

    def _examples(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Example]:
        rows = [(text,) if isinstance(text, str) else tuple(text) for text in listed(texts)]
        n_texts = len(self.task.sentences)
        if wrong := next((row for row in rows if len(row) != n_texts), None):
            form = "a sentence, one text each" if n_texts == 1 else "pairs of sentences, two texts each"
            raise UsageError(f"{self.folder} labels {form}; {wrong!r} has {len(wrong)}")
        return [Example(tuple(" ".join(text.split()) for text in row), None) for row in rows]


class Tagger(TaskSystem):
    """Assigns a tag to each word of a sentence."""

    def tag(self, sentences: str | Sequence[str] | Sequence[Sequence[str]]) -> list[list[tuple[str, str]]]:
        """Return the words of each sentence with their tags.

        sentences: one or more sentences, each a string of words separated by spaces or a list of words.

        Raises: UsageError: the system labels semantic roles, whose tags depend on a predicate.
        """
        if self.config["task"].get("roles"):
            raise UsageError(
                f"{self.folder} labels roles of a given predicate and cannot tag plain sentences; use a tagger"
            )
        rows = [each.split() if isinstance(each, str) else list(each) for each in listed(sentences)]
        examples = [TaggedSentence(words, ["" for _ in words]) for words in rows if words]
        named = iter(self.task.named(examples, self._predict(examples)) if examples else [])
        return [list(zip(words, next(named), strict=True)) if words else [] for words in rows]

    def predict(self, file: str | Path) -> pd.DataFrame:
        """Read a file of sentences in the format of the task's files, and tag its words.

        A file without tags has one word per line, and a blank line after each sentence.

        Returns: a row per word with the columns `sentence` (its number, from 0), `word` and `predicted`.
        """
        form = self.config["task"].get("sentences") or {}
        read = settings.build(form["read"], "task.sentences.read") if form.get("read") else read_tagged
        tagged = self.tag([each.words for each in read(Path(file))])
        rows = [(number, word, tag) for number, words in enumerate(tagged) for word, tag in words]
        return pd.DataFrame(rows, columns=["sentence", "word", "predicted"])


class Reader(TaskSystem):
    """Finds the answer to a question in a paragraph."""

    def answer(self, question: str, context: str) -> str:
        """Return the answer: a span of the paragraph, or a text if the system writes answers.

        Raises: UsageError: the paragraph has no words.
        """
        if not context.split():
            raise UsageError("the paragraph has no words; pass a text as context=")
        question, context = listed([question, context.strip()])
        (asked,) = in_words([Question("", "", context, question, [Answer(context.split()[0], 0)])])
        return answers_of([asked], self._predict([asked]))[""]


class Chooser(TaskSystem):
    """Chooses the best ending of a text."""

    def choose(self, context: str, endings: Sequence[str]) -> int:
        """Return the index of the best ending.

        Raises: UsageError: `endings` is empty.
        """
        if not endings:
            raise UsageError("the list of endings is empty; pass one or more endings")
        context, *endings = listed([context, *endings])
        return int(self._predict([Choice(context, list(endings), 0)])[0])


class Resolver(TaskSystem):
    """Finds the mentions in a document that refer to the same entity (coreference resolution)."""

    def resolve(self, sentences: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the mentions of each cluster in the order of the text.

        sentences: one or more sentences, each a string of words separated by spaces or a list of words.
        """
        rows = [each.split() if isinstance(each, str) else list(each) for each in listed(sentences)]
        if not any(rows):
            return []
        (clusters,) = self._predict([Document("", 0, rows, [])])
        words = [word for row in rows for word in row]
        return [[" ".join(words[first:end]) for first, end in cluster] for cluster in clusters]


class Attended(NamedTuple):
    """A translation with its attention to the source."""

    text: str
    source: list[str]  # Tokens of the source, with the end mark.
    written: list[str]  # Tokens of the translation, with the end mark.
    weights: np.ndarray  # Attention of each written token to each source token, (written, source); rows sum to 1.


class Translator(TaskSystem):
    """Translates sentences, with the decoding strategy of the cell's evaluation."""

    _module: Translation

    @property
    def can(self) -> tuple[str, ...]:
        return ("translate", "attend") if attends(self._module.model) else ("translate",)

    def translate(self, texts: str | Sequence[str]) -> list[str]:
        """Return the translation of each text."""
        return [each.text for each in self._predict([Pair(" ".join(text.split()), "") for text in listed(texts)])]

    def attend(self, texts: str | Sequence[str]) -> list[Attended]:
        """Translate each text, and return the translation with its attention to the source.

        For a Transformer, the attention is the mean over the heads of the last layer.

        Raises: UsageError: the model has no attention to its source.
        """
        if not (pairs := [Pair(" ".join(text.split()), "") for text in listed(texts)]):
            return []
        tokenizer, end = self.tokenizer, self.tokenizer.boundary
        strategy = settings.build(self.config["task"]["decoding"], "task.decoding", Strategy)
        sources = self._encoded(pairs).sources
        results = []
        for source, ids in zip(sources, translate(self._module, sources, strategy, end), strict=True):
            weights = attention_to_source(self._module, source, [*ids, end])
            read, written = (
                [word.strip() for word in each.decode_batch([i] for i in row)]
                for each, row in ((tokenizer.source, source), (tokenizer, [*ids, end]))
            )
            results.append(Attended(" ".join(tokenizer.decode(ids).split()), read, written, weights))
        return results

    @property
    def tokenizer(self) -> Tokenizer:
        assert isinstance(self._text, Tokenizer)
        return self._text


class Summarizer(TaskSystem):
    """Summarises documents."""

    def summarize(self, texts: str | Sequence[str]) -> list[str]:
        """Return the summary of each document, one sentence per line.

        Raises: UsageError: a document has no words.
        """
        rows = [Summarised(text, "") for text in listed(texts)]
        if not all(row.text.split() for row in rows):
            raise UsageError("a document has no words; remove it, or add text to it")
        return ["\n".join(sentences_of(summary)) for summary in self._predict(in_sentences(rows))]


_KINDS: tuple[tuple[type[Task[Any, Any]], type[TaskSystem]], ...] = (
    (SentenceTask, Classifier),
    (TaggingTask, Tagger),
    (QuestionTask, Reader),
    (ChoiceTask, Chooser),
    (CoreferenceTask, Resolver),
    (TranslationTask, Translator),
    (SummaryTask, Summarizer),
)


def load_task(folder: Path) -> TaskSystem:
    """Load the system of a task's cell, as the subclass of `TaskSystem` for that kind of task."""
    task = settings.build(read_config(folder)["task"], "task", Task)
    for kind, loaded in _KINDS:
        if isinstance(task, kind):
            return loaded(folder, task)
    raise UsageError(
        f"{folder} is a cell of {type(task).__name__}, which cannot be used on single texts; use another cell"
    )
