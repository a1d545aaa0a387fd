"""T5's unsupervised objectives: texts corrupted into inputs and targets (Raffel et al. 2020, section 3.3 and table 3).

Each is a pure function of a text, of the generator that draws what is corrupted, and of the symbols that may be
written. It only takes apart and puts together, so that a text may be ids or, to look at it, words:

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

START = 0  # what T5's decoder reads before its first token: the padding


class Symbols(NamedTuple):
    """What a corruption may write beside the tokens of the text."""

    sentinels: np.ndarray  # that stand for spans, in their order; the first is also the mask
    vocabulary: np.ndarray  # tokens that stand in for others


class Pair(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray


class Corruption(Protocol):
    """A text (n,) to inputs and targets, without the marks of their ends."""

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair: ...

    def window(self, length: int) -> int:
        """The longest text whose inputs have no more than `length` tokens."""
        ...

    def n_sentinels(self, window: int) -> int:
        """How many sentinels such a text may need."""
        ...


@dataclass(frozen=True)
class Prefix:
    """Prefix language modelling: the text is cut in two at a place drawn evenly; the rest is the target."""

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
    """The target is the text."""

    def restore(self, pair: Pair, symbols: Symbols) -> np.ndarray:
        return pair.targets

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        return 1


@dataclass(frozen=True)
class BERTStyle(_WholeText):
    """Each token is corrupted with probability `density`: of these, nine in ten masked and one a random token."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        noise = iid_noise(len(text), rng, self.density)
        random = rng.random(len(text)) < 0.1
        tokens = symbols.vocabulary[rng.integers(len(symbols.vocabulary), size=len(text))]
        return Pair(np.where(noise, np.where(random, tokens, symbols.sentinels[0]), text), text)


@dataclass(frozen=True)
class MASSStyle(_WholeText):
    """Each token is masked with probability `density` (Song et al. 2019, as the paper simplifies it)."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return Pair(np.where(iid_noise(len(text), rng, self.density), symbols.sentinels[0], text), text)


@dataclass(frozen=True)
class Deshuffling(_WholeText):
    """The tokens in any order."""

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return Pair(rng.permutation(text), text)

    def n_sentinels(self, window: int) -> int:
        return 0


@dataclass(frozen=True)
class IidDrop:
    """Each token is dropped with probability `density`; the target is those dropped."""

    density: Share = 0.15

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        noise = iid_noise(len(text), rng, self.density)
        return Pair(text[~noise], text[noise])

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        return 0


class _Spans:
    """A sentinel stands for each span of noise; the target is the spans, each after its sentinel, and one more."""

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        raise NotImplementedError

    def __call__(self, text: np.ndarray, rng: np.random.Generator, symbols: Symbols) -> Pair:
        return replace_spans(text, self.noise(len(text), rng), symbols.sentinels)

    def restore(self, pair: Pair, symbols: Symbols) -> np.ndarray:
        """The text: each sentinel of the inputs replaced by its span of the targets."""
        places = np.flatnonzero(np.isin(pair.targets, symbols.sentinels))
        spans = {span[0]: span[1:] for span in np.split(pair.targets, places)[1:]}
        return np.concatenate([spans.get(token, [token]) for token in pair.inputs])


@dataclass(frozen=True)
class IidSpans(_Spans):
    """Each token is noise with probability `density`; consecutive ones are a span."""

    density: Share = 0.15

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        return iid_noise(length, rng, self.density)

    def window(self, length: int) -> int:
        return length

    def n_sentinels(self, window: int) -> int:
        """Five standard deviations above the mean number of spans, which one window in millions exceeds."""
        share = self.density * (1 - self.density)  # of places where a span begins
        return round(window * share + 5 * (window * share * (1 - 3 * share)) ** 0.5) + 1


@dataclass(frozen=True)
class RandomSpans(_Spans):
    """Spans that together are `density` of the text and on average `mean` long, their lengths and distances drawn.

    As in the authors' code, every way to cut so many tokens into so many spans is equally likely, and so for what lies
    between; a text begins with tokens that stay, and ends with a span.
    """

    density: Share = 0.15
    mean: Positive = 3.0

    def noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        n_noise, n_spans = self.counts(length)
        lengths = np.stack([cut(length - n_noise, n_spans, rng), cut(n_noise, n_spans, rng)], axis=1)
        return np.repeat(np.tile([False, True], n_spans), lengths.ravel())

    def counts(self, length: int) -> tuple[int, int]:
        """How many tokens of a text are noise, in how many spans."""
        if length < 2:
            raise UsageError(f"a text of {length} tokens has no span to replace beside what stays; give 2 or more")
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
    """(length,) bool: True with probability `density`, each for itself."""
    return rng.random(length) < density


def cut(length: int, n_parts: int, rng: np.random.Generator) -> np.ndarray:
    """Lengths (n_parts,), 1 or more, that sum to `length`, each such list with the same probability."""
    places = np.sort(rng.choice(length - 1, n_parts - 1, replace=False)) + 1
    return np.diff(places, prepend=0, append=length)


def replace_spans(text: np.ndarray, noise: np.ndarray, sentinels: np.ndarray) -> Pair:
    """The text with the first sentinel in place of the first span of noise, and so on; and the spans behind theirs."""
    pieces = np.split(text, np.flatnonzero(np.diff(noise, prepend=False, append=False)))
    kept, spans = pieces[::2], pieces[1::2]  # the first and the last of what is kept may be empty
    if len(sentinels) < len(kept):
        raise UsageError(
            f"a text of {len(text)} tokens with {len(spans)} spans needs {len(kept)} sentinels, and the tokenizer has "
            f"{len(sentinels)}; lower batches.length or batches.corruption.density"
        )
    marks = np.split(sentinels[: len(kept)], len(kept))
    inputs = [part for stays, mark in zip(kept, marks, strict=True) for part in (stays, mark)][:-1]
    targets = [part for mark, span in zip(marks, [*spans, marks[0][:0]], strict=True) for part in (mark, span)]
    return Pair(np.concatenate(inputs), np.concatenate(targets))


def sentinels_of(marks: dict[str, int]) -> np.ndarray:
    """The ids of `<extra_id_0>`, `<extra_id_1>` and so on."""
    found: list[int] = []
    while (name := f"<extra_id_{len(found)}>") in marks:
        found.append(marks[name])
    return np.array(found, dtype=np.int64)


class Corrupted:
    """Windows that tile the stream, from a new offset and in a new order each epoch, each corrupted anew.

    The inputs of a window are at most `length` tokens with the end mark (`</s>`, or a line's end where the tokenizer
    has none), which ends inputs and targets; exactly `length` under `RandomSpans`.
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
                f"{len(tokens)} tokens give no batch of {batch_size} windows of {self.window}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * self.window
        self.symbols = Symbols(sentinels_of(marks), np.setdiff1d(np.arange(vocab_size), list(marks.values())))
        self.end = marks.get("</s>", line_end)
        needed, name = corruption.n_sentinels(self.window), type(corruption).__name__
        if needed and not len(self.symbols.sentinels):
            raise UsageError(
                f"{name} writes sentinels, and the tokenizer has no <extra_id_0>; write tokenizer=unigram or "
                "tokenizer=word_marked"
            )
        if needed > len(self.symbols.sentinels):
            raise UsageError(
                f"{name} may need {needed} sentinels for a window of {self.window} tokens, and the tokenizer has "
                f"{len(self.symbols.sentinels)}; lower batches.length, or write tokenizer=unigram, which has 100"
            )
        self._tokens, self._corruption, self._batch_size, self._seed = tokens, corruption, batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        share = share_of_rows(self._batch_size, rank, world)
        pairs = [self._corrupted(start, step, row) for row, start in enumerate(self._starts(step))]
        inputs, targets = zip(*pairs, strict=True)
        mine = pad(inputs, targets, np.arange(self._batch_size)[share])
        mine.target_ids[:, 0] = START
        return mine._replace(weight=world * int(mine.target_lengths.sum()) / sum(map(len, targets)))

    def _starts(self, step: int) -> np.ndarray:
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            rng = np.random.default_rng((self._seed, epoch))
            offset = rng.integers(self.window)
            self._order = epoch, offset + self.window * rng.permutation(self._windows)
        return self._order[1][index * self._batch_size :][: self._batch_size]

    def _corrupted(self, start: int, step: int, row: int) -> Pair:
        text = self._tokens[start : start + self.window].astype(np.int64)
        rng = np.random.default_rng((self._seed, step, row, 1))  # without the 1, row 0 would draw what an epoch draws
        inputs, targets = self._corruption(text, rng, self.symbols)
        return Pair(np.append(inputs, self.end), np.append(targets, self.end))
