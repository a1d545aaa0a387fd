"""Corrupt texts into inputs and targets: T5's unsupervised objectives (Raffel et al. 2020, section 3.3, table 3).

Each corruption is a pure function of the text, a random generator and the symbols that it may insert. Corruptions only
move, replace and remove items, so a text may be an array of ids or, as in this example, an array of words:

>>> text = np.array("Thank you for inviting me to your party last week .".split())
>>> symbols = Symbols(sentinels=np.array(["<X>", "<Y>", "<Z>"]), vocabulary=np.array(["apple"]))
>>> plain, noisy = [Prefix(), Deshuffling(), RandomSpans(0.3, mean=1.5)], [BERTStyle, MASSStyle, IidSpans, IidDrop]
>>> for corruption in plain + [kind(density=0.3) for kind in noisy]:
...     inputs, targets = corruption(text, np.random.default_rng(5), symbols)
...     print(f"{type(corruption).__name__}: {' '.join(inputs)} → {' '.join(targets)}")
Prefix: Thank you for inviting me to your → party last week .
Deshuffling: . party you inviting for me your Thank week to last → Thank you for inviting me to your party last week .
RandomSpans: Thank you for inviting me <X> party last week <Y> → <X> to your <Y> . <Z>
BERTStyle: Thank you for <X> <X> to your <X> apple week . → Thank you for inviting me to your party last week .
MASSStyle: Thank you for <X> <X> to your <X> <X> week . → Thank you for inviting me to your party last week .
IidSpans: Thank you for <X> to your <Y> week . → <X> inviting me <Y> party last <Z>
IidDrop: Thank you for to your week . → inviting me party last
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed, Share
from retable.data.pairs import PairBatch, pad
from retable.data.streams import share_of_rows

START = 0  # id of the decoder's first input; as in T5, it is the padding id


class Symbols(NamedTuple):
    """The tokens that a corruption of a text may insert."""

    sentinels: np.ndarray  # tokens that replace spans, in the order of use; the first sentinel is also the mask token
    vocabulary: np.ndarray  # the tokens from which random replacements are drawn


class Pair(NamedTuple):
    """The inputs and targets of one text."""

    inputs: np.ndarray
    targets: np.ndarray


class Corruption(Protocol):
    """A function that turns a text, (n,), into inputs and targets; end marks are added later."""

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair: ...

    def window(self, length: int) -> int:
        """Return the length of the longest text whose inputs have at most `length` tokens."""
        ...

    def n_sentinels(self, window: int) -> int:
        """Return the number of sentinels that a text of `window` tokens may need."""
        ...


@dataclass(frozen=True)
class Prefix:
    """Prefix language modelling: cut the text at a uniformly drawn position into inputs and target."""

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        cut = rng.integers(1, len(text))
        return Pair(text[:cut], text[cut:])

    def restore(self, pair: Pair, symbols: Symbols) -> np.ndarray:
        return np.concatenate(pair)

    def window(self, length: int) -> int:
        return length + 1

    def n_sentinels(self, window: int) -> int:
        return 0


class _WholeText:
    """A corruption whose target is the whole text."""

    def restore(self, pair: Pair, symbols: Symbols) -> np.ndarray:
        return pair.targets

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        return 1


@dataclass(frozen=True)
class BERTStyle(_WholeText):
    """Corrupt each token with probability `density`: mask 90 % of these tokens, and replace 10 % by random tokens."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        noise = iid_noise(len(text), rng, self.density)
        random = rng.random(len(text)) < 0.1
        tokens = symbols.vocabulary[rng.integers(len(symbols.vocabulary), size=len(text))]
        return Pair(np.where(noise, np.where(random, tokens, symbols.sentinels[0]), text), text)


@dataclass(frozen=True)
class MASSStyle(_WholeText):
    """Mask each token with probability `density`; this is a simplified form of MASS (Song et al. 2019)."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return Pair(np.where(iid_noise(len(text), rng, self.density), symbols.sentinels[0], text), text)


@dataclass(frozen=True)
class Deshuffling(_WholeText):
    """Deshuffling: the input is the text's tokens in random order, and the target is the text."""

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return Pair(rng.permutation(text), text)

    def n_sentinels(self, window: int) -> int:
        return 0


@dataclass(frozen=True)
class IidDrop:
    """Remove each token with probability `density`; the target consists of the removed tokens."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        noise = iid_noise(len(text), rng, self.density)
        return Pair(text[~noise], text[noise])

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        return 0


class _Spans:
    """Corruptions that replace each span of noise tokens by a sentinel.

    The target contains each sentinel followed by the span that it replaces, and ends with one more sentinel.
    """

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return replace_spans(text, self.noise(len(text), rng), symbols.sentinels)

    def restore(self, pair: Pair, symbols: Symbols) -> np.ndarray:
        """Rebuild the text: replace each input sentinel by the span after it in the targets."""
        places = np.flatnonzero(np.isin(pair.targets, symbols.sentinels))
        spans = {span[0]: span[1:] for span in np.split(pair.targets, places)[1:]}
        return np.concatenate([spans.get(token, [token]) for token in pair.inputs])


@dataclass(frozen=True)
class IidSpans(_Spans):
    """Replace spans of noise: each token is noise with probability `density`, and adjacent noise tokens form a span."""

    density: Share = 0.15

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        return iid_noise(length, rng, self.density)

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        """Return the mean number of spans per window, plus five standard deviations, plus 1 for the final sentinel.

        Fewer than one window in a million has more spans than this number allows. The final sentinel ends the target.
        """
        share = self.density * (1 - self.density)  # the probability that a span begins at a position
        return round(window * share + 5 * (window * share * (1 - 3 * share)) ** 0.5) + 1


@dataclass(frozen=True)
class RandomSpans(_Spans):
    """Replace random spans that cover a share `density` of the text and are `mean` tokens long on average.

    The number of spans depends only on the text's length. All divisions of the noise tokens into spans are equally
    likely. All divisions of the other tokens into gaps between the spans are also equally likely, as in the authors'
    code. A text begins with a gap and ends with a span.
    """

    density: Share = 0.15
    mean: Positive = 3.0

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        n_noise, n_spans = self.counts(length)
        lengths = np.stack([cut(length - n_noise, n_spans, rng), cut(n_noise, n_spans, rng)], axis=1)
        return np.repeat(np.tile([False, True], n_spans), lengths.ravel())

    def counts(self, length: int) -> tuple[int, int]:
        """Return the number of noise tokens and the number of spans in a text of `length` tokens."""
        if length < 2:
            raise UsageError(
                f"a text of {length} tokens is too short to replace a span; use a text of 2 tokens or more"
            )
        n_noise = min(max(round(length * self.density), 1), length - 1)
        return n_noise, min(max(round(n_noise / self.mean), 1), n_noise, length - n_noise)

    def window(self, length: int) -> int:
        window = 2
        while self._inputs(window + 1) <= length:
            window += 1
        return window

    def _inputs(self, window: int) -> int:
        n_noise, n_spans = self.counts(window)
        return window - n_noise + n_spans

    def n_sentinels(self, window: int) -> int:
        return self.counts(window)[1] + 1


def iid_noise(length: int, rng: np.random.Generator, density: float) -> np.ndarray:
    """Draw a random mask, (length,) bool: each position is True with probability `density`, independently."""
    return rng.random(length) < density


def cut(length: int, n_parts: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a list of `n_parts` positive integers with the sum `length`; all such lists are equally likely."""
    places = np.sort(rng.choice(length - 1, n_parts - 1, replace=False)) + 1
    return np.diff(places, prepend=0, append=length)


def replace_spans(text: np.ndarray, noise: np.ndarray, sentinels: np.ndarray) -> Pair:
    """Replace each span of noise in a text by a sentinel; the target lists each sentinel and the span it replaced.

    Args:
        text: ids, (T,).
        noise: mask of the tokens to hide, (T,) bool.
        sentinels: ids of the sentinels; the first sentinel replaces the first span, and so on.

    Returns: inputs and targets.
    Raises: UsageError: the text has more spans than there are sentinels.
    """
    pieces = np.split(text, np.flatnonzero(np.diff(noise, prepend=False, append=False)))
    kept, spans = pieces[::2], pieces[1::2]  # the first and the last piece of `kept` may be empty
    if len(sentinels) < len(kept):
        raise UsageError(
            f"a text of {len(text)} tokens with {len(spans)} spans needs {len(kept)} sentinels, but the tokenizer has "
            f"{len(sentinels)}; lower batches.length or batches.corruption.density"
        )
    marks = np.split(sentinels[: len(kept)], len(kept))
    inputs = [part for stays, mark in zip(kept, marks, strict=True) for part in (stays, mark)][:-1]
    targets = [part for mark, span in zip(marks, [*spans, marks[0][:0]], strict=True) for part in (mark, span)]
    return Pair(np.concatenate(inputs), np.concatenate(targets))


def sentinels_of(marks: dict[str, int]) -> np.ndarray:
    """Return the ids of the sentinels `<extra_id_0>`, `<extra_id_1>` and so on.

    The list ends before the first `<extra_id_…>` that is not in `marks`.
    """
    ids: list[int] = []
    while (name := f"<extra_id_{len(ids)}>") in marks:
        ids.append(marks[name])
    return np.array(ids, dtype=np.int64)


class Corrupted:
    """Batches of corrupted windows that cover the stream; each epoch has a new offset, order and corruption.

    The input of a window has at most `length` tokens; with `RandomSpans`, it has exactly `length` tokens. Inputs and
    targets end with the end mark: `</s>`, or the line end if the tokenizer has no `</s>`.

    Args:
        tokens: ids, (N,), which may be memory-mapped.
        marks: ids of special tokens by name; `<extra_id_0>`, `<extra_id_1>` and so on are the sentinels.
        line_end: id that ends a row if the tokenizer has no `</s>`.
        batch_size: rows per batch, summed over all processes.

    Raises: UsageError: the stream is too short for a batch, or the tokenizer has too few sentinels.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        marks: dict[str, int],
        line_end: int,
        vocab_size: PositiveInt,
        seed: Seed,
        corruption: Corruption,
        batch_size: PositiveInt,
        length: PositiveInt,
    ):
        self.window = corruption.window(length - 1)
        self._windows = len(tokens) // self.window - 1
        self.steps_per_epoch = self._windows // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(tokens)} tokens are too few for a batch of {batch_size} windows of {self.window}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * self.window
        self.symbols = Symbols(sentinels_of(marks), np.setdiff1d(np.arange(vocab_size), list(marks.values())))
        self.end = marks.get("</s>", line_end)
        needed, name = corruption.n_sentinels(self.window), type(corruption).__name__
        if needed and not len(self.symbols.sentinels):
            raise UsageError(
                f"{name} needs sentinels, but the tokenizer has no <extra_id_0>; write tokenizer=unigram or "
                "tokenizer=word_marked"
            )
        if needed > len(self.symbols.sentinels):
            raise UsageError(
                f"{name} may need {needed} sentinels for a window of {self.window} tokens, but the tokenizer has "
                f"{len(self.symbols.sentinels)}; lower batches.length, or write tokenizer=unigram, which has 100"
            )
        self._tokens, self._corruption, self._batch_size, self._seed = tokens, corruption, batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        share = share_of_rows(self._batch_size, rank, world)
        pairs = [self._corrupted(start, step, row) for row, start in enumerate(self._starts(step))]
        inputs, targets = zip(*pairs, strict=True)
        own = pad(inputs, targets, np.arange(self._batch_size)[share])
        own.target_ids[:, 0] = START
        return own._replace(weight=world * int(own.target_lengths.sum()) / sum(map(len, targets)))

    def _starts(self, step: int) -> np.ndarray:
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            offset = rng.integers(self.window)
            self._order = epoch, offset + self.window * rng.permutation(self._windows)
        return self._order[1][index * self._batch_size :][: self._batch_size]

    def _corrupted(self, start: int, step: int, row: int) -> Pair:
        text = self._tokens[start : start + self.window].astype(np.int64)
        rng = np.random.default_rng((self._seed, step, row, 1))  # the 1 makes row 0's seed differ from an epoch's seed
        inputs, targets = self._corruption(text, rng, self.symbols)
        return Pair(np.append(inputs, self.end), np.append(targets, self.end))
