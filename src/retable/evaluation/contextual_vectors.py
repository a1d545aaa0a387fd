"""Two benchmarks of the word vectors in a model's layers: unseen words and word senses.

A model that reads the spelling of words also has vectors for words that are not in its training text. The vector of an
unseen word should be near words with the same stem or the same inflection (Jozefowicz et al. 2016 list such neighbours
in Table 2). A word's sense in context is predicted as the sense of the nearest other occurrence of the same word
(Peters et al. 2018, section 5.3).

Dimensions: B batch, D vector size, K layers, T words of a sentence, n occurrences of a word, S senses.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from retable.core.errors import UsageError, reading
from retable.core.settings import PositiveInt
from retable.data.batches import mapped
from retable.evaluation.neighbours import nearest
from retable.evaluation.word_vectors import WordVectors, unit
from retable.models.base import BothDirections
from retable.tokenizers.tokenizer import Tokenizer

AHEAD = 16  # Number of batches in memory at a time.
TIE = 1e-5  # Cosines that differ by less than TIE count as ties, as among a word's equal vectors in layer 0.
SENSE_COLUMNS = ["word", "sentence", "position", "sense"]


@runtime_checkable
class Contextual(Protocol):
    """A system that returns one vector per layer for each word of a sentence."""

    def layers(self, sentences: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        """Yield the vectors of each sentence's words, (K, T, D); layer 0 sees no context."""
        ...


class Layered(Protocol):
    """A model that returns the states of all its layers.

    `max_length` is the maximum number of input tokens, or None if the model has no maximum.
    """

    @property
    def max_length(self) -> int | None: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return K layers of shape (B, T, D) for ids (B, T) that are padded after `lengths`.

        The first layer represents each token without its context.
        """
        ...


class ContextualVectors:
    """A trained model with its tokenizer, which returns vectors of the words in sentences.

    A model that reads the spelling of words computes one vector per word. For other models, a word's vector is the mean
    of its tokens' vectors. The model reads a sentence between [CLS] and [SEP] if the tokenizer has these tokens,
    otherwise between boundary tokens. A sentence with more tokens than the model can read is cut at the end.

    Args:
        batch_size: number of sentences per batch.
    """

    def __init__(self, model: Layered, tokenizer: Tokenizer, batch_size: int = 64):
        self._model, self._tokenizer, self._batch_size = model, tokenizer, batch_size
        marks = tokenizer.special_ids
        self._first, self._last = marks.get("[CLS]", tokenizer.boundary), marks.get("[SEP]", tokenizer.boundary)
        self._spelling = model if isinstance(model, BothDirections) and model.reads_spelling else None
        self.protocol = "a sentence, by spelling" if self._spelling else "a sentence, the mean of a word's tokens"

    def layers(self, sentences: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        """Yield the vectors of each sentence's words, float32 (K, T, D); layer 0 sees no context.

        If a sentence is cut at the end, T is the number of its remaining words.
        """
        batches = [sentences[i : i + self._batch_size] for i in range(0, len(sentences), self._batch_size)]
        for some in (batches[i : i + AHEAD] for i in range(0, len(batches), AHEAD)):
            yield from chain(*mapped(self._of_batch, some))

    def n_cut(self, sentences: Sequence[Sequence[str]]) -> int:
        """Count the sentences with more tokens than the model can read."""
        if self._room is None:
            return 0
        return sum(len(ids) > self._room for ids in self._tokenizer.encode_batch([*map(" ".join, sentences)]))

    @property
    def _room(self) -> int | None:
        """Return the maximum number of tokens between the first and last mark, or None if there is no maximum."""
        return None if self._spelling or self._model.max_length is None else self._model.max_length - 2

    @torch.inference_mode()
    def _of_batch(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        return [*(self._by_spelling(self._spelling, sentences) if self._spelling else self._by_tokens(sentences))]

    def _by_spelling(self, model: BothDirections, sentences: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        first, last = self._tokenizer.words[self._first], self._tokenizer.words[self._last]
        layers = _stack(model.layers_of_words([[first, *sentence, last] for sentence in sentences]))
        for row, sentence in zip(layers, sentences, strict=True):
            yield row[:, 1 : len(sentence) + 1]

    def _by_tokens(self, sentences: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        owners, rows, n_words = [], [], []
        for sentence in sentences:
            whole = self._tokenizer.encode_with_offsets(" ".join(sentence))
            tokens = whole[: self._room]
            ends = np.cumsum([len(word.encode()) + 1 for word in sentence]) - 1
            # A token belongs to the word that contains its last byte. A space belongs to the next word.
            owners.append(np.searchsorted(ends, [token.end - 1 for token in tokens], side="right"))
            n_words.append(len(sentence) if len(tokens) == len(whole) else int(owners[-1][-1]) + 1)
            rows.append(torch.tensor([self._first, *(token.id for token in tokens), self._last]))
        device = next(self._model.parameters()).device
        lengths = torch.tensor([len(row) for row in rows])
        layers = self._model.layers(pad_sequence(rows, batch_first=True).to(device), lengths.to(device))
        for row, owner, n in zip(_stack(layers), owners, n_words, strict=True):
            share = (owner == np.arange(n)[:, None]).astype(np.float32)  # (T, tokens)
            share /= np.maximum(share.sum(axis=1, keepdims=True), 1)
            yield share @ row[:, 1 : len(owner) + 1]


def _stack(layers: Sequence[Tensor]) -> np.ndarray:
    """Stack K layers of shape (B, T, D) into one float32 array, (B, K, T, D)."""
    return torch.stack(list(layers), dim=1).float().cpu().numpy()


class Lexicon(Protocol):
    """The lexicon of the built-in grammar.

    Lexemes are named tuples, whose first fields are the inflected forms. A lexeme's `forms` lists these forms, the stem
    first.
    """

    nouns: Mapping[str, Sequence[Any]]
    verbs: Mapping[str, Sequence[Any]]
    adjectives: Sequence[Any]


class Form(NamedTuple):
    stem: str
    form: str  # word class and inflection, such as "verb past"


class UnseenWords:
    """A benchmark of unseen words: their nearest neighbours in layer 0, which sees no context.

    A word is unseen if it is not in the training text.

    Args:
        text: the folder of a prepared corpus.
        words: the unseen words to look up; None looks up the words that `unseen_forms` returns for the lexicon.
        lexicon: provides the stem and the inflection of words. Without a lexicon, the neighbours are written to the
            table but not scored.
        neighbours: number of neighbours per word.
        restrict_vocab: only this many of the text's most frequent words can be neighbours.

    `inputs` lists the files that the scores depend on.
    Raises: UsageError: `words` is a string, or both `words` and `lexicon` are missing.
    """

    requires = Contextual

    def __init__(
        self,
        text: str,
        words: Sequence[str] | None = None,
        lexicon: Lexicon | None = None,
        neighbours: PositiveInt = 10,
        restrict_vocab: PositiveInt = 30_000,
    ):
        if isinstance(words, str):
            raise UsageError(f"words={words} is a word, not a list; write benchmark.unseen_words.words=[{words}]")
        if not words and lexicon is None:
            raise UsageError(
                "there is no lexicon to choose words from; write benchmark.unseen_words.words=[some,words]"
            )
        self.inputs = [Path(text, "train.txt")]
        self.words, self.lexicon = words, lexicon
        self.neighbours, self.restrict_vocab = neighbours, restrict_vocab

    def __call__(self, system: Contextual, folder: Path) -> dict[str, float]:
        """Write `unseen_words.csv`, and score the nearest neighbours if there is a lexicon.

        The table has one row per neighbour of an unseen word. The columns contain the unseen word, its stem and
        inflection (if known); the neighbour's rank from 1; the neighbour, its cosine to the unseen word, and the
        neighbour's stem and inflection.

        Returns: `unseen_words/words`, the number of scored words, and the shares of scored words whose nearest
            neighbour has
            - `unseen_words/stem`: the same stem, or a stem derived from it (actor, actress).
            - `unseen_words/form`: the same inflection.
            - `unseen_words/stem_or_form`: the same inflection, or a stem as for `unseen_words/stem`.
            The result is empty if the lexicon contains none of the words. Compare these shares with the shares of an
            untrained model, because similar spelling explains a large part of each share.
        Raises: UsageError: a word of `words` occurs in the training text, or the training text contains all forms of
            the lexicon.
        """
        with self.inputs[0].open(encoding="utf-8") as file:
            seen = Counter(chain.from_iterable(map(str.split, file)))
        forms = {} if self.lexicon is None else forms_of(self.lexicon)
        unseen = {word: forms.get(word) for word in self.words} if self.words else unseen_forms(forms, set(seen))
        if known := [word for word in unseen if word in seen]:
            raise UsageError(f"{self.inputs[0]} contains the words {', '.join(known)}; choose unseen words")
        if not unseen:
            raise UsageError(
                f"{self.inputs[0]} contains all forms of the lexicon; write benchmark.unseen_words.words=[some,words]"
            )
        vocabulary = [word for word, _ in seen.most_common(self.restrict_vocab)]
        names = [*vocabulary, *unseen]
        vectors = np.concatenate([layers[0] for layers in system.layers([[name] for name in names])])
        known_vectors, own = vectors[: len(vocabulary)], dict(zip(unseen, vectors[len(vocabulary) :], strict=True))
        nearby = nearest(WordVectors(vocabulary, known_vectors, own.__getitem__), [*unseen], self.neighbours)
        with (folder / "unseen_words.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                ("word", "stem", "form", "place", "neighbour", "cosine", "neighbour_stem", "neighbour_form")
            )
            for (word, form), near in zip(unseen.items(), nearby, strict=True):
                for place, (neighbour, cosine) in enumerate(near, 1):
                    others = forms.get(neighbour) or ("", "")
                    writer.writerow((word, *(form or ("", "")), place, neighbour, f"{cosine:.4f}", *others))
        scored = [(form, forms.get(near[0][0])) for form, near in zip(unseen.values(), nearby, strict=True) if form]
        if not scored:
            return {}
        stem = np.array([other is not None and other.stem.startswith(form.stem) for form, other in scored])
        same = np.array([other is not None and form.form == other.form for form, other in scored])
        shares = {"stem": stem, "form": same, "stem_or_form": stem | same}
        metrics = {f"unseen_words/{name}": float(each.mean()) for name, each in shares.items()}
        return {"unseen_words/words": float(len(scored)), **metrics}


def forms_of(lexicon: Lexicon) -> dict[str, Form]:
    """Map each form of the lexicon's nouns, verbs and adjectives to its stem and inflection."""
    lexemes = [*chain(*lexicon.nouns.values(), *lexicon.verbs.values()), *lexicon.adjectives]
    return {
        word: Form(lexeme.forms[0], f"{type(lexeme).__name__.lower()} {lexeme._fields[lexeme.index(word)]}")
        for lexeme in lexemes
        for word in lexeme.forms
    }


def unseen_forms(forms: Mapping[str, Form], seen: set[str]) -> dict[str, Form]:
    """Return words that do not occur in `seen`, but whose stems occur in `seen`.

    The result contains words of the lexicon, and regularised forms of irregular words, such as "goed". A regularised
    form is the stem with the most frequent ending of the inflection.

    Args:
        forms: maps each word of the lexicon to its stem and inflection.
        seen: words of the training text.
    """
    endings: dict[str, Counter[str]] = defaultdict(Counter)
    for word, (stem, form) in forms.items():
        if word.startswith(stem):
            endings[form][word.removeprefix(stem)] += 1
    regular = {
        stem + endings[form].most_common(1)[0][0]: Form(stem, form)
        for word, (stem, form) in forms.items()
        if not word.startswith(stem) and endings[form]
    }
    candidates = {**{word: form for word, form in regular.items() if word not in forms}, **forms}
    return {word: form for word, form in candidates.items() if word not in seen and form.stem in seen}


class Occurrence(NamedTuple):
    word: str
    sentence: list[str]
    position: int
    sense: str


class Senses:
    """A benchmark of how well the vectors of each layer distinguish the senses of a word.

    Args:
        senses: a tab-separated file with the columns `word`, `sentence` (words separated by spaces), `position` (index
            of the word in the sentence, from 0) and `sense`. Senses that occur only once are ignored. A word is ignored
            if fewer than two of its senses occur more than once.

    `inputs` lists the files that the scores depend on.
    """

    requires = Contextual

    def __init__(self, senses: str):
        self.inputs = [Path(senses)]

    def __call__(self, system: Contextual, folder: Path) -> dict[str, float]:
        """Write `senses.csv` and `sense_plane.csv`, and return the accuracies over all occurrences.

        `senses.csv` has one row per word and layer, with the columns word, layer, occurrences, senses, majority,
        nearest and centroid. `sense_plane.csv` has one row per occurrence and layer, with the columns word, layer,
        sense, x and y. x and y are the occurrence's coordinates on the first two principal components of the word's
        vectors.

        Layer 0 represents a word without its context. If several occurrences (or means) are equally near, the accuracy
        is the share of them that have the correct sense.

        Returns:
            - `senses/layer_<k>/nearest`: accuracy of predicting the sense of the nearest other occurrence of the word.
            - `senses/layer_<k>/centroid`: accuracy of predicting the sense whose mean vector is the nearest; the mean
              excludes the occurrence itself.
            - `senses/majority`: accuracy of always predicting the word's most frequent sense.
            - `senses/occurrences`: the number of occurrences of all words.
        """
        words = read_senses(self.inputs[0])
        occurrences = list(chain.from_iterable(words.values()))
        layers = system.layers([each.sentence for each in occurrences])
        vectors = np.stack([layer[:, each.position] for each, layer in zip(occurrences, layers, strict=True)], axis=1)
        sums: Counter[str] = Counter()
        with (
            (folder / "senses.csv").open("w", newline="", encoding="utf-8") as scores,
            (folder / "sense_plane.csv").open("w", newline="", encoding="utf-8") as plane,
        ):
            score_writer, plane_writer = (csv.writer(file, lineterminator="\n") for file in (scores, plane))
            score_writer.writerow(("word", "layer", "occurrences", "senses", "majority", "nearest", "centroid"))
            plane_writer.writerow(("word", "layer", "sense", "x", "y"))
            start = 0
            for word, own in words.items():
                senses, n = np.array([each.sense for each in own]), len(own)
                counts = np.unique(senses, return_counts=True)[1]
                sums["senses/majority"] += counts.max()
                for k, rows in enumerate(vectors[:, start : start + n]):
                    accuracies = by_nearest(rows, senses).mean(), by_centroid(rows, senses).mean()
                    for name, accuracy in zip(("nearest", "centroid"), accuracies, strict=True):
                        sums[f"senses/layer_{k}/{name}"] += accuracy * n
                    shares = (f"{share:.6f}" for share in (counts.max() / n, *accuracies))
                    score_writer.writerow((word, k, n, len(counts), *shares))
                    for sense, (x, y) in zip(senses, principal_plane(rows), strict=True):
                        plane_writer.writerow((word, k, sense, f"{x:.6f}", f"{y:.6f}"))
                start += n
        metrics = {name: float(total / len(occurrences)) for name, total in sums.items()}
        return {"senses/occurrences": float(len(occurrences)), **metrics}


def read_senses(path: Path) -> dict[str, list[Occurrence]]:
    """Read each word's occurrences from a file of senses (see `Senses`), in the file's order.

    Senses with a single occurrence are dropped. A word is dropped if fewer than two of its senses occur more than once.

    Raises: UsageError: the file does not have the format of `Senses`, or no word remains.
    """
    words: dict[str, list[Occurrence]] = defaultdict(list)
    with reading(path, UnicodeError, csv.Error), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if (header := next(reader, [])) != SENSE_COLUMNS:
            raise UsageError(f"{path} has the columns {header}; rename them to {SENSE_COLUMNS}")
        for number, row in enumerate(reader, 2):
            word, sentence, position, sense = row if len(row) == len(SENSE_COLUMNS) else ("", "", "", "")
            tokens = sentence.split(" ")
            if not position.isdecimal() or tokens[int(position) : int(position) + 1] != [word]:
                raise UsageError(f"{path}, line {number}: {word!r} is not at position {position!r} of the sentence")
            words[word].append(Occurrence(word, tokens, int(position), sense))
    kept = {}
    for word, occurrences in words.items():
        counts = Counter(each.sense for each in occurrences)
        often = [each for each in occurrences if counts[each.sense] > 1]
        if len({each.sense for each in often}) > 1:
            kept[word] = often
    if not kept:
        raise UsageError(f"{path} has no word with two senses that each occur twice; add occurrences")
    return kept


def by_nearest(vectors: np.ndarray, senses: np.ndarray) -> np.ndarray:
    """Return, for each vector, the share of its nearest neighbours that have the same sense.

    Nearness is measured by cosine.

    Shapes: vectors (n, D), senses (n,), result (n,). The share is 0 or 1 unless several vectors are equally near.
    """
    directions = unit(vectors)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    return _share_of_nearest(cosines, senses[:, None] == senses)


def by_centroid(vectors: np.ndarray, senses: np.ndarray) -> np.ndarray:
    """Check, for each vector, whether its sense has the mean vector that is nearest to the vector.

    Nearness is measured by cosine. The mean of a vector's own sense excludes the vector itself. Each sense must occur
    at least twice.

    Shapes: vectors (n, D), senses (n,), result (n,). The result is 1 or 0. If several means, among them the mean of the
        right sense, are equally near, the result is 1 divided by the number of these means.
    """
    names, of = np.unique(senses, return_inverse=True)
    sums = np.zeros((len(names), vectors.shape[1]))
    np.add.at(sums, of, vectors)
    directions = unit(vectors)
    cosines = directions @ unit(sums).T  # (n, S)
    cosines[np.arange(len(of)), of] = (directions * unit(sums[of] - vectors)).sum(axis=1)
    return _share_of_nearest(cosines, of[:, None] == np.arange(len(names)))


def _share_of_nearest(cosines: np.ndarray, right: np.ndarray) -> np.ndarray:
    nearest = cosines >= cosines.max(axis=1, keepdims=True) - TIE
    return (nearest & right).sum(axis=1) / nearest.sum(axis=1)


def principal_plane(vectors: np.ndarray) -> np.ndarray:
    """Project vectors, (n, D), to their first two principal components, (n, 2).

    The sign of a principal component is arbitrary. Here, the sign is chosen so that the coordinate with the largest
    absolute value is positive.
    """
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * scales)[:, :2]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(farthest < 0, -1.0, 1.0)
