"""Tasks that give a tag to each word of a sentence; sentences from files in columns or CoNLL-U, or from a text with
labels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from retable.core.errors import UsageError, require_file
from retable.core.settings import NonNegativeInt
from retable.corpora.columns import TaggedSentence, read_tagged
from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS
from retable.data import layouts
from retable.data.bucketed import Encoded
from retable.data.tagged import TaggedExample, encoded
from retable.metrics.roles import role_counts
from retable.metrics.spans import SHARES, Scheme, convert, span_counts
from retable.metrics.units import share
from retable.models.base import LeftToRight, Model
from retable.objectives.states import require_token_states
from retable.objectives.tagging import Tagging
from retable.tasks.base import Task, Text, require_no_predicate
from retable.tasks.reading import ends_of_sequences, in_tokens
from retable.tasks.table import placed
from retable.tokenizers.tokenizer import Tokenizer

COLUMNS = ("words", "right")  # of a unit; where tags make spans also those that are right, predicted, and labelled
SPAN_COLUMNS = ("spans_right", "spans_predicted", "spans_labelled")
SEED = 0  # of the sentences that are held out: the same for all that train, whatever their seed


class TaggedFiles:
    """A file a split; `inputs` are those that there are.

    validation: None holds `held_out` random sentences of the training file out.
    read: makes sentences of a path; by default of columns, the word in the first and the tag in the last.
    """

    def __init__(
        self,
        train: str,
        test: str,
        validation: str | None = None,
        held_out: NonNegativeInt = 0,
        read: Callable[[Path], list[TaggedSentence]] = read_tagged,
    ):
        if (validation is None) == (held_out == 0):
            raise UsageError(
                "tags are tuned on sentences that are not trained on: write either task.sentences.validation, a "
                "file, or task.sentences.held_out, how many of the training sentences"
            )
        self._paths = {"train": train, "validation": validation, "test": test}
        self.inputs = [Path(path) for path in self._paths.values() if path is not None]
        self._held_out, self._read = held_out, read

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """The sentences of train, validation and test. UsageError for a file that is missing or can't be read."""
        splits = {split: self._read(Path(path)) for split, path in self._paths.items() if path is not None}
        if self._held_out:
            train = splits["train"]
            places = _places(train)
            if self._held_out >= (n_sentences := len(set(places))):
                raise UsageError(
                    f"task.sentences.held_out={self._held_out} leaves none of the {n_sentences} sentences of "
                    f"{self._paths['train']} to train on; write a smaller number"
                )
            held = set(np.random.default_rng(SEED).permutation(n_sentences)[: self._held_out].tolist())
            splits["train"] = [each for each, place in zip(train, places, strict=True) if place not in held]
            splits["validation"] = [each for each, place in zip(train, places, strict=True) if place in held]
        return {split: splits[split] for split in self._paths}


def _places(sentences: Sequence[TaggedSentence]) -> list[int]:
    """The number of each sentence in the text; one comes once for each of its predicates, one behind the other."""
    pairs = zip([None, *sentences], sentences, strict=False)
    new = [here.predicate is None or before is None or here.words != before.words for before, here in pairs]
    return (np.cumsum(new, dtype=int) - 1).tolist()


class LabelledText(Protocol):
    """Sentences with labels of their words, by what they say."""

    inputs: list[Path]

    def sentences(self, split: str) -> Sequence[Any]: ...


class TaggedText:
    """The sentences of a text that comes with labels, such as the grammar's, and those labels for tags."""

    def __init__(self, text: LabelledText, label: str):
        self._text, self._label = text, label
        self.inputs = text.inputs

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """The sentences of train, validation and test."""
        return {
            split: [TaggedSentence(each.words, each.labels[self._label]) for each in self._text.sentences(split)]
            for split in SPLITS
        }


class Source(Protocol):
    """Tagged sentences by split, and the files that they come from."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[TaggedSentence]]: ...


class TaggingTask(Task[TaggedSentence, Sequence[int]]):
    """A tag for each word of a sentence.

    A model that reads words by their spelling gets them whole; any other reads their tokens, and a word's first one
    tells its tag (Devlin et al. 2019, section 5.3), or to a model that reads from left to right its last one, which
    alone has read the word. What does not fit into the model is cut from the end of a sentence:
    words behind the cut are not trained on, and get the most frequent tag of training, so that the metrics count them.

    Its units are sentences: the words, those whose tag is right, and of tags of spans those that are right, predicted
    and labelled.

    scheme: that tags of spans are trained and predicted in; None for tags that make no spans.
    roles: whether the tags are about a predicate, and a sentence comes once for each of its own; a unit is then all of
        them together.
    """

    kind = "tagging"
    in_order = True
    statistics = {"accuracy": (("right", "words"), share)} | {name: (SPAN_COLUMNS, SHARES[name]) for name in SHARES}
    metrics = tuple(statistics)  # the last three where tags make spans
    in_words = True
    at_once = 128

    def __init__(
        self,
        sentences: Source,
        scheme: Scheme | None = None,
        roles: bool = False,
        convention: Callable[[str], str] | None = None,
    ):
        self.inputs, self.convention, self.selects = sentences.inputs, convention, "f1" if scheme else "accuracy"
        self._source, self._scheme, self._roles = sentences, scheme, roles

    def require(self, model: type[Model], d_predicate: int) -> None:
        if self._roles and not d_predicate:
            raise UsageError(
                f"the tags are about a predicate, and {model.__name__} is not told which word it is; write "
                "recipe=taggers/role_labeller"
            )
        if not self._roles:
            require_no_predicate(d_predicate)
        require_token_states(model, "be tagged by")

    @cached_property
    def _sentences(self) -> dict[str, list[TaggedSentence]]:
        for path in self.inputs:
            require_file(path)
        splits = self._source.splits()
        if any((each.predicate is not None) != self._roles for rows in splits.values() for each in rows):
            said, found = ("true", "not all sentences name") if self._roles else ("false", "some sentences name")
            raise UsageError(f"task.roles={said}, but {found} a predicate that their tags are about; write the other")
        scheme = self._scheme
        with placed(self.inputs):
            return {
                split: [each._replace(tags=convert(each.tags, scheme)) if scheme else each for each in rows]
                for split, rows in splits.items()
            }

    def examples(self, split: str) -> list[TaggedSentence]:
        return self._sentences[split]

    def words(self, examples: Sequence[TaggedSentence]) -> list[list[str]]:
        """Of each sentence, once."""
        return [examples[place].words for place in _starts(examples)]

    def answered(self, example: TaggedSentence) -> Answered:
        return (*example.words, example.predicate), tuple(example.tags)

    @cached_property
    def tags(self) -> list[str]:
        """Those of the training split, and so those that can be predicted."""
        return sorted({tag for each in self._sentences["train"] for tag in each.tags})

    @cached_property
    def _places(self) -> dict[str, int]:
        return {tag: i for i, tag in enumerate(self.tags)}

    @cached_property
    def _commonest(self) -> str:
        """The most frequent tag of training, of several the first in the order of `tags`."""
        counts = Counter(tag for each in self._sentences["train"] for tag in each.tags)
        return max(self.tags, key=counts.__getitem__)

    def learnt(self) -> dict[str, Any]:
        return {"tags": self.tags, "commonest": self._commonest}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        self.tags, self._commonest = learnt["tags"], learnt["commonest"]

    def objective(self, model: Model, text: Text, *, dropout: float, crf: bool) -> Tagging:  # type: ignore[override]
        return Tagging(model, self.tags, dropout, crf, self._scheme if crf else None)

    def encode(self, model: Model, text: Text, examples: Sequence[TaggedSentence]) -> Encoded:
        if isinstance(text, Tokenizer):
            return self._encode_tokens(model, text, examples)
        return encoded(
            [
                TaggedExample(
                    text.sentence(each.words), range(1, len(each.words) + 1), self._ids(each.tags), each.predicate
                )
                for each in examples
            ]
        )

    def _encode_tokens(self, model: Model, tokenizer: Tokenizer, examples: Sequence[TaggedSentence]) -> Encoded:
        start, end = ends_of_sequences(model, tokenizer)
        from_left = isinstance(model, LeftToRight)
        rows, shortened = [], 0
        for each in examples:
            tokens = in_tokens(tokenizer, each.words)
            input_ids = layouts.between(tokens.ids, start, end, model.max_length)
            is_cut = len(input_ids) < len(tokens.ids) + 2
            # The end stands where the first token that was cut did.
            tells = tokens.last if from_left else tokens.first
            words = [1 + place for place in tells if not is_cut or 1 + place < len(input_ids) - 1]
            words = words or [len(input_ids) - 1]  # of a first word that is longer than the model, the end
            rows.append(TaggedExample(input_ids, words, self._ids(each.tags[: len(words)])))
            shortened += is_cut
        return encoded(rows, shortened)

    def _ids(self, tags: Sequence[str]) -> list[int]:
        """A tag that is not trained on can't be predicted: any number will do for it."""
        return [self._places.get(tag, 0) for tag in tags]

    def read(self, encoded: Encoded, places: Sequence[int], rows: list[Sequence[int]]) -> list[Sequence[int]]:
        """The tags of the words that were read, whose number is an example's length."""
        return [row[: encoded.lengths[place]] for place, row in zip(places, rows, strict=True)]

    def units(self, examples: Sequence[TaggedSentence], predictions: Sequence[Sequence[int]]) -> pd.DataFrame:
        gold, guessed = [each.tags for each in examples], self.named(examples, predictions)
        right = [sum(map(str.__eq__, *pair)) for pair in zip(gold, guessed, strict=True)]
        counts = np.array([[len(tags) for tags in gold], right]).T
        if self._scheme:
            spans = role_counts(gold, guessed) if self._roles else span_counts(gold, guessed)
            counts = np.hstack([counts, spans])
        columns = [*COLUMNS, *(SPAN_COLUMNS if self._scheme else ())]
        of_sentences = np.add.reduceat(counts, _starts(examples))
        return pd.DataFrame(of_sentences, columns=columns).rename_axis("unit").reset_index()

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        return tuple(units["words"])

    def write(
        self, folder: Path, split: str, examples: Sequence[TaggedSentence], predictions: Sequence[Sequence[int]]
    ) -> list[str]:
        """Word, tag and prediction a line, a blank line behind each sentence, spans in IOB2: what the Perl script
        conlleval reads, which joins neighbours of one type where one begins with S. Where there is a predicate, a
        column behind the words holds it in its own line, and a hyphen in the others."""
        with (folder / f"{split}.tags.txt").open("w", encoding="utf-8") as file:
            for each, guessed in zip(examples, self.named(examples, predictions), strict=True):
                columns = [each.words, *(self._plain(tags) for tags in (each.tags, guessed))]
                if each.predicate is not None:
                    columns.insert(1, [word if i == each.predicate else "-" for i, word in enumerate(each.words)])
                file.writelines(f"{' '.join(row)}\n" for row in zip(*columns, strict=True))
                file.write("\n")
        return []

    def _plain(self, tags: Sequence[str]) -> Sequence[str]:
        return convert(tags, "IOB2") if self._scheme else tags

    def facts(self, examples: Mapping[str, Sequence[TaggedSentence]]) -> dict[str, Any]:
        return {"tags": len(self.tags)}

    def named(self, examples: Sequence[TaggedSentence], predictions: Sequence[Sequence[int]]) -> list[list[str]]:
        """The tags of each sentence: those of its row, which may be padded, and of words behind that the commonest."""
        named = []
        for each, row in zip(examples, predictions, strict=True):
            tags = [self.tags[i] for i in row[: len(each.words)]]
            named.append(tags + [self._commonest] * (len(each.words) - len(tags)))
        return named


def _starts(sentences: Sequence[TaggedSentence]) -> list[int]:
    """Where another sentence begins: several predicates of one follow each other, with the same list of words."""
    return [i for i, each in enumerate(sentences) if i == 0 or each.words is not sentences[i - 1].words]
