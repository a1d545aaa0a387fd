"""Systems of a task, used on texts of one's own. n texts, C classes."""

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
from retable.data.pairs import encode_lines
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
    """A task's system; words that it never saw are spelt, where its model reads words by their spelling."""

    task: Any  # of the kind that its class is for
    _module: Objective

    def __init__(self, folder: Path, task: Task[Any, Any]):
        config = read_config(folder)
        self.task, self._text = task, read_text(folder)
        if (learnt := folder / "learnt.json").exists():
            task.recall(read_json(learnt))
        super().__init__(folder, self._objective(config))
        load_weights(self._module, require(folder / "model.safetensors"))

    @property
    def objective(self) -> Objective:
        """What it was trained by, on its model."""
        return self._module

    @property
    def text(self) -> Text:
        """By what it makes ids: a tokenizer, or the words that it spells."""
        return self._text

    def _objective(self, config: Any) -> Objective:
        model = build_model(config, self._text)
        return self.task.objective(model, self._text, **config["head"]).eval()

    def _predict(self, examples: Sequence[Any]) -> list[Any]:
        try:
            json.dumps(examples, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError("the text holds a lone surrogate, half a character; read it as UTF-8") from None
        if isinstance(self._text, Vocabulary):
            self._learn_to_spell(word for sentence in self.task.words(examples) for word in sentence)
        return self.task.predict(self._module, self._encoded(examples)) if examples else []

    def _encoded(self, examples: Sequence[Any]) -> Any:
        if isinstance(self._text, Tokenizer):
            warn_of_unknown(self._text, _strings(examples))
        found = self.task.encode(self._module.model, self._text, examples)
        if isinstance(found, Encoded):
            warn_of_cut(found.shortened, len(examples), f"the model's max_length={self._module.model.max_length}")
        return found

    def _learn_to_spell(self, words: Iterable[str]) -> None:
        """Build the model for further words: what it has learnt is of the letters, and stays."""
        assert isinstance(self._text, Vocabulary)
        more = self._text.with_words(words)
        if len(more.words) > len(self._text.words):
            before, self._text = self._module, more
            self._module = self._objective(self.config).to(self.device)
            self._module.load_state_dict(before.state_dict())


def _strings(value: Any) -> Iterator[str]:
    """All texts in an example, which is of tuples and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


class Classifier(TaskSystem):
    """Gives sentences, or pairs of them, a label or a score."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes; none where the label is a number."""
        return tuple(self.task.labels.names)

    @property
    def can(self) -> tuple[str, ...]:
        return ("classify", "predict", *(("probabilities",) if self._tells_classes() else ()))

    def classify(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[str] | list[float]:
        """The label of each sentence, or of each pair, by its name; of a task of scores, numbers."""
        found = self._predict(self._examples(texts))
        if not isinstance(self.task.labels, Classes):
            return [float(each) for each in found]
        names = [*self.labels, ""]  # of a model that writes its labels, behind them what is none
        return [names[int(each)] for each in found]

    @torch.inference_mode()
    def probabilities(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> np.ndarray:
        """(n, C), in the order of `labels`. UsageError where the label is a number, or is written."""
        if not self._tells_classes():
            raise UsageError(f"{self.folder} gives no probabilities of classes; ask it to classify")
        examples = self._examples(texts)
        rows = np.empty((len(examples), len(self.labels)), np.float32)
        if not examples:
            return rows
        for places, batch in in_order_of_length(self._encoded(examples), self.task.at_once):
            rows[places] = self._module(on_device(self.device, batch)).float().softmax(dim=1).cpu().numpy()
        return rows

    def predict(self, file: str | Path) -> pd.DataFrame:
        """Read a file with the columns of the task's sentences, and return its rows with a prediction each.

        The columns behind those of the file: `predicted`, the label by its name, or the score; where a head gives
        probabilities `probability`, that of the label, and `p(NAME)` of each class. The file is delimited text, JSON
        lines or parquet by its name's ending; one without a header is read as the task's test set is.

        UsageError for a file that is missing, broken, empty or without the columns, or has columns of these names.
        """
        path = Path(file)
        table = self._table(path)
        if missing := [name for name in self.task.sentences if name not in table.columns]:
            found = ", ".join(map(repr, table.columns)) or "none"
            raise UsageError(f"{path} has no column {missing[0]!r}, which {self.folder} reads; it has {found}")
        rows = list(table.rows)
        if not rows:
            raise UsageError(f"{path} has no rows; write one per text")
        for row in rows:
            if missing := [name for name in self.task.sentences if row.fields.get(name) is None]:
                raise UsageError(f"{path}, {row.place} has no {missing[0]!r}; give it one, or take the row out")
        texts: Any = [tuple(str(row.fields[name]) for name in self.task.sentences) for row in rows]
        found = pd.DataFrame({"predicted": self.classify(texts)})
        if self._tells_classes():
            with warnings.catch_warnings():  # `classify` has warned of these texts
                warnings.simplefilter("ignore", UsageWarning)
                of_classes = self.probabilities(texts)
            found["probability"] = of_classes[
                range(len(rows)), [self.labels.index(name) for name in found["predicted"]]
            ]
            found = pd.concat([found, pd.DataFrame(of_classes, columns=[f"p({name})" for name in self.labels])], axis=1)
        read = pd.DataFrame([row.fields for row in rows], dtype=object)
        if twice := [name for name in found if name in read]:
            raise UsageError(f"{path} has a column {twice[0]!r}, which predictions would be in; rename it")
        return pd.concat([read, found], axis=1)

    def _table(self, path: Path) -> Table:
        said = self.config["task"]
        file = said["files"].get("test") or said["files"]["train"]
        read = settings.build(said["read"], "task.read") if said.get("read") else read_table
        known = inspect.signature(read).parameters
        form = dict(said.get("form") or {}) | (dict(file) if isinstance(file, Mapping) else {})
        form = {name: value for name, value in form.items() if name in known and name not in ("path", "gold")}
        if said.get("read") or {"columns", "pattern"} & form.keys():  # a file of the user's may yet have a header
            try:
                table = read_table(path)
                if set(self.task.sentences) <= set(table.columns):
                    return table
            except UsageError:  # it has none
                pass
        return read(path, **form)

    def _tells_classes(self) -> bool:
        return isinstance(self._module, Classification) and not isinstance(self._module, Regression)

    def _examples(self, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Example]:
        rows = [(text,) if isinstance(text, str) else tuple(text) for text in listed(texts)]
        wanted = len(self.task.sentences)
        if wrong := next((row for row in rows if len(row) != wanted), None):
            what = "a sentence, a text each" if wanted == 1 else "pairs of sentences, two texts each"
            raise UsageError(f"{self.folder} labels {what}; {wrong!r} is {len(wrong)}")
        return [Example(tuple(" ".join(text.split()) for text in row), None) for row in rows]


class Tagger(TaskSystem):
    """Gives each word of a sentence a tag."""

    def tag(self, sentences: str | Sequence[str] | Sequence[Sequence[str]]) -> list[list[tuple[str, str]]]:
        """The words of each sentence with their tags; a sentence is a text whose words are parted by spaces, or its
        words. UsageError for a labeller of roles, whose tags are about a predicate."""
        if self.config["task"].get("roles"):
            raise UsageError(f"{self.folder} labels the roles of a predicate; it has no tags of a sentence alone")
        rows = [each.split() if isinstance(each, str) else list(each) for each in listed(sentences)]
        examples = [TaggedSentence(words, ["" for _ in words]) for words in rows if words]
        named = iter(self.task.named(examples, self._predict(examples)) if examples else [])
        return [list(zip(words, next(named), strict=True)) if words else [] for words in rows]

    def predict(self, file: str | Path) -> pd.DataFrame:
        """Read a file of sentences as the task's files are, and return a row per word: `sentence`, its number from 0
        on, `word` and `predicted`. The file may lack tags: a word per line, a blank line after each sentence."""
        said = self.config["task"].get("sentences") or {}
        read = settings.build(said["read"], "task.sentences.read") if said.get("read") else read_tagged
        tagged = self.tag([each.words for each in read(Path(file))])
        rows = [(number, word, tag) for number, words in enumerate(tagged) for word, tag in words]
        return pd.DataFrame(rows, columns=["sentence", "word", "predicted"])


class Reader(TaskSystem):
    """Finds the answer to a question in a paragraph."""

    def answer(self, question: str, context: str) -> str:
        """As the paragraph writes it, or as the system does."""
        if not context.split():
            raise UsageError("the paragraph has no words, and so no answer; give context= a text")
        context = context.strip()
        (asked,) = in_words([Question("", "", context, question, [Answer(context.split()[0], 0)])])
        return answers_of([asked], self._predict([asked]))[""]


class Chooser(TaskSystem):
    """Finds the ending that goes on with a beginning."""

    def choose(self, context: str, endings: Sequence[str]) -> int:
        """Its place among the endings."""
        if not endings:
            raise UsageError("there is no ending to choose; give one or more")
        return int(self._predict([Choice(context, list(endings), 0)])[0])


class Resolver(TaskSystem):
    """Finds what in a document means the same."""

    def resolve(self, sentences: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
        """Of each cluster its mentions, in the order of the text; a sentence is as to a Tagger."""
        rows = [each.split() if isinstance(each, str) else list(each) for each in listed(sentences)]
        if not any(rows):
            return []
        (clusters,) = self._predict([Document("", 0, rows, [])])
        words = [word for row in rows for word in row]
        return [[" ".join(words[first:behind]) for first, behind in cluster] for cluster in clusters]


class Attended(NamedTuple):
    """A translation, and what was looked at of its source."""

    text: str
    source: list[str]  # the tokens, with the end mark
    written: list[str]  # likewise
    weights: np.ndarray  # (written, source): the share of its attention that each gives to each


class Translator(TaskSystem):
    """Writes sentences in another language, by the search that the cell was evaluated with."""

    _module: Translation

    @property
    def can(self) -> tuple[str, ...]:
        return ("translate", "attend") if attends(self._module.model) else ("translate",)

    def translate(self, texts: str | Sequence[str]) -> list[str]:
        """Each text in the other language."""
        return [each.text for each in self._predict([Pair(" ".join(text.split()), "") for text in listed(texts)])]

    def attend(self, texts: str | Sequence[str]) -> list[Attended]:
        """The same, with the attention to the source; a Transformer's is the mean over the heads of its last layer.
        UsageError for a model without one."""
        tokenizer, end = self.tokenizer, self.tokenizer.boundary
        strategy = settings.build(self.config["task"]["decoding"], "task.decoding", Strategy)
        warn_of_unknown(tokenizer, texts := listed(texts))
        sources = encode_lines(tokenizer, [" ".join(text.split()) for text in texts])
        found = []
        for source, ids in zip(sources, translate(self._module, sources, strategy, end), strict=True):
            weights = attention_to_source(self._module, source, [*ids, end])
            read, written = (
                [word.strip() for word in tokenizer.decode_batch([i] for i in row)] for row in (source, [*ids, end])
            )
            found.append(Attended(" ".join(tokenizer.decode(ids).split()), read, written, weights))
        return found

    @property
    def tokenizer(self) -> Tokenizer:
        assert isinstance(self._text, Tokenizer)
        return self._text


class Summarizer(TaskSystem):
    """Says in short what a document says."""

    def summarize(self, texts: str | Sequence[str]) -> list[str]:
        """The summary of each document, a sentence a line. UsageError for one without words."""
        rows = [Summarised(text, "") for text in listed(texts)]
        if not all(row.text.split() for row in rows):
            raise UsageError("a document has no words, and so no summary; give each a text")
        return ["\n".join(sentences_of(found)) for found in self._predict(in_sentences(rows))]


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
    """The system of the cell of a task, by the task's class."""
    task = settings.build(read_config(folder)["task"], "task", Task)
    for kind, loaded in _KINDS:
        if isinstance(task, kind):
            return loaded(folder, task)
    raise UsageError(f"{folder} is of {type(task).__name__}, which is no task that texts can be given to")
