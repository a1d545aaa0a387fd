"""Tagging: predict a tag for each word of a sentence. Data: files with columns, CoNLL-U files, or a labelled text."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from retable.core.errors import UsageError, require_file
from retable.core.settings import NonNegativeInt, PositiveInt
from retable.corpora.columns import TaggedSentence, read_tagged
from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS
from retable.data import templates
from retable.data.bucketed import Bucketed, Encoded, at_once
from retable.data.tagged import TaggedExample, encoded
from retable.metrics.roles import role_counts
from retable.metrics.spans import SHARES, Scheme, convert, span_counts
from retable.metrics.units import share
from retable.models.base import Estimated, LeftToRight, Model
from retable.objectives.at_once import AtOnce
from retable.objectives.states import require_token_states
from retable.objectives.tagging import Tagging
from retable.tasks.base import Task, Text, require_no_predicate
from retable.tasks.reading import ends_of_sequences, in_tokens
from retable.tasks.table import placed
from retable.tokenizers.tokenizer import Tokenizer

COLUMNS = ("words", "right")  # columns of the units; for span tags, SPAN_COLUMNS are added
SPAN_COLUMNS = ("spans_right", "spans_predicted", "spans_labelled")
SEED = 0  # seed for the random choice of held-out sentences; constant, so that all runs have the same split


class TaggedFiles:
    """Tagged sentences from one file per split; the attribute `inputs` lists the files.

    Args:
        validation: file of the validation split; if this is None, `held_out` must be set.
        held_out: number of random training sentences to use for validation; with 0, there is no validation split.
        read: function that reads the sentences of a file. By default, the file has columns; the first column is the
            word, and the last column is the tag.

    Raises: UsageError: both `validation` and `held_out` are set, or both are None.
    """

    def __init__(
        self,
        train: str,
        test: str,
        validation: str | None = None,
        held_out: NonNegativeInt | None = None,
        read: Callable[[Path], list[TaggedSentence]] = read_tagged,
    ):
        if (validation is None) == (held_out is None):
            raise UsageError(
                "the validation split is missing or given twice: set either task.sentences.validation to a file, or "
                "task.sentences.held_out to a number of training sentences"
            )
        self._paths = {"train": train, "validation": validation, "test": test}
        self.inputs = [Path(path) for path in self._paths.values() if path is not None]
        self._held_out, self._read = held_out, read
        self.names = [
            split for split in SPLITS if self._paths[split] is not None or (split == "validation" and held_out)
        ]

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """Return the sentences of the splits train, validation and test.

        Raises: UsageError: a file is missing or malformed, its words are also its tags, or `held_out` leaves no
            training sentence.
        """
        splits = {split: self._read(Path(path)) for split, path in self._paths.items() if path is not None}
        if same := next((name for name, read in splits.items() if all(each.words == each.tags for each in read)), None):
            raise UsageError(
                f"{self._paths[same]}: the words and the tags are the same column; separate the columns of the file by "
                "spaces or tabs"
            )
        if self._held_out:
            train = splits["train"]
            places = _places(train)
            if self._held_out >= (n_sentences := len(set(places))):
                raise UsageError(
                    f"task.sentences.held_out={self._held_out} leaves no training sentence of the {n_sentences} in "
                    f"{self._paths['train']}; write a smaller number"
                )
            held = set(np.random.default_rng(SEED).permutation(n_sentences)[: self._held_out].tolist())
            splits["train"] = [each for each, place in zip(train, places, strict=True) if place not in held]
            splits["validation"] = [each for each, place in zip(train, places, strict=True) if place in held]
        return {split: splits[split] for split in self.names}


def _places(sentences: Sequence[TaggedSentence]) -> list[int]:
    """Number the sentences of a text; adjacent copies of a sentence (one per predicate) get the same number."""
    pairs = zip([None, *sentences], sentences, strict=False)
    new = [here.predicate is None or before is None or here.words != before.words for before, here in pairs]
    return (np.cumsum(new, dtype=int) - 1).tolist()


class LabelledText(Protocol):
    """A text whose words have several kinds of labels.

    For each kind of labels, a sentence contains a list with one label per word.
    """

    inputs: list[Path]

    def sentences(self, split: str) -> Sequence[Any]: ...


class TaggedText:
    """The sentences of a labelled text; one kind of labels is used as the tags.

    The text of the built-in grammar is such a labelled text.

    label: the kind of labels to predict, such as `part_of_speech`.
    """

    def __init__(self, text: LabelledText, label: str):
        self._text, self._label = text, label
        self.inputs = text.inputs

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """Return the sentences of the splits train, validation and test."""
        return {
            split: [TaggedSentence(each.words, each.labels[self._label]) for each in self._text.sentences(split)]
            for split in SPLITS
        }


class Source(Protocol):
    """A source of tagged sentences, with a list of its files and the sentences of each split."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[TaggedSentence]]: ...


class TaggingTask(Task[TaggedSentence, Sequence[int]]):
    """Tagging of words.

    The unit of evaluation is a sentence, with its number of words, its number of correct tags and, for span tags, its
    numbers of correct, predicted and labelled spans.

    A model that reads words by their spelling reads whole words. Other models read tokens and predict the tag of a word
    from the word's first token (Devlin et al. 2019, section 5.3). Left-to-right models predict the tag from the word's
    last token, because only the state of this token depends on the whole word. Sentences that are too long for the
    model are cut at the end. Words that are cut off are not used for training. In evaluation, the prediction for such
    words is the most frequent training tag.

    Args:
        scheme: scheme of span tags for training and prediction, such as IOBES; None if tags do not mark spans.
        roles: whether the tags are the semantic roles of a predicate. With roles, the source contains one copy of a
            sentence for each predicate, and all copies form one unit of evaluation.
        convention: rewrites a word for pretrained vectors, see `retable.data.word_vectors.look_up`.
        features: function that returns the features of each word of a sentence. A feature is connected directly to the
            tags. None: no features.
        cutoff: least number of words with a feature in training; rarer features are not used.
        batch_unit: unit of `batch_size`, which is the number of sentences, or the largest number of words,
            including padding.
        loss_unit: unit over which the loss of a batch is averaged: words, or sentences, each with the sum over its
            words.
    """

    kind = "tagging"
    in_order = True
    statistics = {"accuracy": (("right", "words"), share)} | {name: (SPAN_COLUMNS, SHARES[name]) for name in SHARES}
    metrics = tuple(statistics)  # all metrics except accuracy are only for span tags
    in_words = True
    at_once = 128

    def __init__(
        self,
        sentences: Source,
        scheme: Scheme | None = None,
        roles: bool = False,
        convention: Callable[[str], str] | None = None,
        features: Callable[[Sequence[str]], Iterable[list[str]]] | None = None,
        cutoff: PositiveInt = 1,
        batch_unit: Literal["sentences", "words"] = "sentences",
        loss_unit: Literal["words", "sentences"] = "words",
    ):
        self.inputs, self.convention, self.selects = sentences.inputs, convention, "f1" if scheme else "accuracy"
        self._source, self._scheme, self._roles = sentences, scheme, roles
        self._features, self._cutoff = features, cutoff
        self._batch_in_words, self._by_sentence = batch_unit == "words", loss_unit == "sentences"

    @property
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return getattr(self._source, "names", SPLITS)

    def require(self, model: type[Model], d_predicate: int) -> None:
        if issubclass(model, Estimated) and (self._roles or not model.tags):
            needs = "has no predicate input" if model.tags else "does not tag words"
            raise UsageError(f"{model.__name__} {needs}; write recipe=taggers/role_labeller or taggers/bilstm_crf")
        if self._roles and not d_predicate:
            raise UsageError(
                f"the tags concern a predicate, but {model.__name__} has no predicate input; write "
                "recipe=taggers/role_labeller"
            )
        if not self._roles:
            require_no_predicate(d_predicate)
        if not issubclass(model, Estimated):
            require_token_states(model, "be tagged by")
        elif self._features or self._batch_in_words or self._by_sentence:
            raise UsageError(
                f"{model.__name__} is not trained in batches; remove task.features, task.batch_unit and task.loss_unit"
            )

    @cached_property
    def _sentences(self) -> dict[str, list[TaggedSentence]]:
        for path in self.inputs:
            require_file(path)
        splits = self._source.splits()
        if any((each.predicate is not None) != self._roles for rows in splits.values() for each in rows):
            setting, other = ("true", "false") if self._roles else ("false", "true")
            problem = "some sentences have no predicate" if self._roles else "some sentences have a predicate"
            raise UsageError(f"task.roles={setting}, but {problem}; write task.roles={other}")
        scheme = self._scheme
        with placed(self.inputs):
            return {
                split: [each._replace(tags=convert(each.tags, scheme)) if scheme else each for each in rows]
                for split, rows in splits.items()
            }

    def examples(self, split: str) -> list[TaggedSentence]:
        return self._sentences[split]

    def words(self, examples: Sequence[TaggedSentence]) -> list[list[str]]:
        """Return the words of each sentence once, although a sentence with several predicates has several copies."""
        return [examples[place].words for place in _starts(examples)]

    def answered(self, example: TaggedSentence) -> Answered:
        return (*example.words, example.predicate), tuple(example.tags)

    @cached_property
    def tags(self) -> list[str]:
        """Return the tags of the training split; other tags cannot be predicted."""
        return sorted({tag for each in self._sentences["train"] for tag in each.tags})

    @cached_property
    def _places(self) -> dict[str, int]:
        return {tag: i for i, tag in enumerate(self.tags)}

    @cached_property
    def _commonest(self) -> str:
        """Return the most frequent training tag; of equally frequent tags, return the first in `tags`."""
        counts = Counter(tag for each in self._sentences["train"] for tag in each.tags)
        return max(self.tags, key=counts.__getitem__)

    @cached_property
    def features(self) -> list[str]:
        """Return the features of at least `cutoff` words of the training split, in the order of the text."""
        if self._features is None:
            return []
        sentences = self._sentences["train"]
        counts = Counter(name for each in sentences for row in self._features(each.words) for name in row)
        return [name for name, count in counts.items() if count >= self._cutoff]

    @cached_property
    def _feature_ids(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.features, 1)}

    def _features_of(self, words: Sequence[str]) -> Tensor | None:
        """Return the ids of each word's features, (W, F), in which 0 is padding or a feature that is not used."""
        if self._features is None:
            return None
        rows = [[self._feature_ids.get(name, 0) for name in row] for row in self._features(words)]
        width = max(map(len, rows))
        return torch.tensor([row + [0] * (width - len(row)) for row in rows])

    def learnt(self) -> dict[str, Any]:
        learnt = {"tags": self.tags, "commonest": self._commonest}
        return learnt if self._features is None else {**learnt, "features": self.features}

    def recall(self, learnt: Mapping[str, Any]) -> None:
        self.tags, self._commonest = learnt["tags"], learnt["commonest"]
        self.features = learnt.get("features", [])

    def labelled(self, examples: Sequence[TaggedSentence]) -> tuple[list[list[str]], list[list[str]]]:
        return [each.words for each in examples], [each.tags for each in examples]

    def objective(  # type: ignore[override]
        self, model: Model, text: Text, *, dropout: float, crf: bool
    ) -> Tagging | AtOnce:
        if isinstance(model, Estimated):  # `convert` repairs predicted span tags that have an I after an O
            return AtOnce(model, lambda tags: self._ids(convert(tags, self._scheme) if self._scheme else tags))
        return Tagging(model, self.tags, dropout, crf, self._scheme if crf else None, len(self.features))

    def encode(self, model: Model, text: Text, examples: Sequence[TaggedSentence]) -> Encoded:
        if isinstance(model, Estimated):
            return at_once([each.words for each in examples])
        if isinstance(text, Tokenizer):
            return self._encode_tokens(model, text, examples)
        rows = []
        for each in examples:
            places, features = range(1, len(each.words) + 1), self._features_of(each.words)
            rows.append(
                TaggedExample(text.sentence(each.words), places, self._ids(each.tags), each.predicate, features)
            )
        return encoded(rows, by_sentence=self._by_sentence)

    def _encode_tokens(self, model: Model, tokenizer: Tokenizer, examples: Sequence[TaggedSentence]) -> Encoded:
        start, end = ends_of_sequences(model, tokenizer)
        from_left = isinstance(model, LeftToRight)
        rows, truncated = [], 0
        for each in examples:
            tokens = in_tokens(tokenizer, each.words)
            input_ids = templates.between(tokens.ids, start, end, model.max_length)
            is_cut = len(input_ids) < len(tokens.ids) + 2
            # In a shortened sequence, the token at the last index is the end mark, not a token of a word.
            tells = tokens.last if from_left else tokens.first
            words = [1 + place for place in tells if not is_cut or 1 + place < len(input_ids) - 1]
            # If even the first word does not fit, its tag is predicted from the end mark.
            words = words or [len(input_ids) - 1]
            n_words = len(words)
            features = self._features_of(each.words[:n_words])
            rows.append(TaggedExample(input_ids, words, self._ids(each.tags[:n_words]), features=features))
            truncated += is_cut
        return encoded(rows, truncated, self._by_sentence)

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Bucketed:
        return Bucketed(encoded, batch_size, seed, self._batch_in_words)

    def _ids(self, tags: Sequence[str]) -> list[int]:
        """Return the ids of tags. A tag that is not in the training split gets id 0, because it cannot be predicted."""
        return [self._places.get(tag, 0) for tag in tags]

    def read(self, encoded: Encoded, places: Sequence[int], rows: list[Sequence[int]]) -> list[Sequence[int]]:
        """Remove the padding from predicted tags.

        In the result, an example has one tag for each word that the model has read.

        Args:
            rows: predicted tag indices of each example, padded.
        """
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
        """Write one line per word with the word, its tag and the predicted tag, for the Perl script conlleval.

        A blank line ends a sentence. Span tags are written in IOB2, because conlleval would join adjacent spans of the
        same type if tags were in IOBES. For semantic roles, an additional second column contains the predicate in the
        predicate's line, and a hyphen in all other lines.

        Returns: an empty list, because the file is too large to view.
        """
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
        facts = {"tags": len(self.tags)}
        return facts if self._features is None else {**facts, "features": len(self.features)}

    def named(self, examples: Sequence[TaggedSentence], predictions: Sequence[Sequence[int]]) -> list[list[str]]:
        """Convert predicted tag indices to tags; a word without a prediction gets the most frequent training tag.

        Args:
            predictions: the predicted tag indices of each example; the list may be longer or shorter than the sentence.
        """
        named = []
        for each, row in zip(examples, predictions, strict=True):
            tags = [self.tags[i] for i in row[: len(each.words)]]
            named.append(tags + [self._commonest] * (len(each.words) - len(tags)))
        return named


def _starts(sentences: Sequence[TaggedSentence]) -> list[int]:
    """Return the index of the first copy of each sentence; copies are found by their shared list of words."""
    return [i for i, each in enumerate(sentences) if i == 0 or each.words is not sentences[i - 1].words]
