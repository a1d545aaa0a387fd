"""Chunks of tagged sequences, with precision, recall and F1 as in conlleval.

The Perl script conlleval is the scorer of CoNLL 2000, 2002 and 2003. A tag is O, or one of the letters B, I, E and S
with a hyphen and a type. The letters L, U, M and W of other schemes are read as E, S, I and S. The letter must come
first: `PER-B`, or a type without a letter, is an error.

One rule covers IOB1, IOB2, IOBES and malformed sequences: a tag continues a chunk only if it has the type of the chunk,
so an I after O or after another type begins a chunk. For B, I, O and E, the Perl script has the same rule. The Perl
script does not know S, and would join neighbouring chunks of one type in IOBES. In this module, a chunk ends after E
and S, and S begins a chunk, as in reimplementations of the script.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retable.core.errors import TextError, UsageError

Scheme = Literal["IOB1", "IOB2", "IOBES"]
Tags = Sequence[str]

# Maps letters of other schemes to IOBES: L (last) and U (unit) of BILOU, M (middle) of BMES, and W (a chunk of one
# word) of BMEWO.
OF_OTHER_SCHEMES = {"L": "E", "U": "S", "M": "I", "W": "S"}


class Chunk(NamedTuple):
    """A span of words with a type."""

    type: str
    start: int
    end: int  # the index of the word after the chunk


def chunks(tags: Tags) -> list[Chunk]:
    """Return the chunks of a sequence of tags, in order.

    Raises: TextError: a tag does not begin with a letter of the schemes.
    """
    results, start = [], 0
    last, last_kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = OF_OTHER_SCHEMES.get(letter, letter)
        if letter not in ("O", "B", "I", "E", "S"):
            raise TextError(_not_a_tag(tag), tag, tag)
        at_boundary = letter in "OBS" or last in "OES" or kind != last_kind
        if at_boundary and last != "O":
            results.append(Chunk(last_kind, start, place))
        if at_boundary and letter != "O":
            start = place
        last, last_kind = letter, kind
    return results


def _not_a_tag(tag: str) -> str:
    kind, _, letter = tag.rpartition("-")
    instead = f"{letter}-{kind}" if kind and letter in ("B", "I", "E", "S", *OF_OTHER_SCHEMES) else f"B-{tag or 'NP'}"
    return (
        f"{tag!r} is not a chunk tag; write O or, as in {instead}, one of B, I (M), E (L) and S (U, W), a hyphen, "
        "and the type"
    )


def write_tags(spans: Sequence[Chunk], length: int, scheme: Scheme) -> list[str]:
    """Return the tags of a sequence of `length` words with the chunks `spans`.

    Args:
        spans: chunks in the order of the text, which must not overlap.
        scheme: `IOB1`, `IOB2` or `IOBES`.

    Raises: UsageError: the scheme is unknown.
    """
    if scheme not in get_args(Scheme):
        raise UsageError(f"unknown scheme={scheme}; write one of {', '.join(get_args(Scheme))}")
    tags = ["O"] * length
    before = Chunk("", -1, -1)
    for chunk in spans:
        inner = chunk.end - chunk.start - 1
        if scheme == "IOBES":
            letters = ["B", *["I"] * (inner - 1), "E"] if inner else ["S"]
        else:
            touches = (before.type, before.end) == (chunk.type, chunk.start)
            letters = ["B" if scheme == "IOB2" or touches else "I", *["I"] * inner]
        tags[chunk.start : chunk.end] = [f"{letter}-{chunk.type}" if chunk.type else letter for letter in letters]
        before = chunk
    return tags


def convert(tags: Tags, scheme: Scheme) -> list[str]:
    """Convert tags to `scheme`. Malformed sequences become the chunks that conlleval would count.

    Raises: UsageError: the scheme is unknown.
    """
    return write_tags(chunks(tags), len(tags), scheme)


def span_counts(labels: Sequence[Tags], predictions: Sequence[Tags]) -> NDArray[np.int64]:
    """Count the correct, predicted and labelled chunks of each sequence, (n, 3); correct means same place and type.

    Args:
        labels, predictions: for each sentence, the tags of its words; labels and predictions have equal lengths.
    """
    counts = [(len(true & guessed), len(guessed), len(true)) for true, guessed in _pairs(labels, predictions)]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


def span_counts_by_type(labels: Sequence[Tags], predictions: Sequence[Tags]) -> dict[str, NDArray[np.int64]]:
    """Count the correct, predicted and labelled chunks over all sequences, (3,), by type.

    Args:
        labels, predictions: for each sentence, the tags of its words; labels and predictions have equal lengths.
    """
    counts: dict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    for true, guessed in _pairs(labels, predictions):
        for column, chunk_set in enumerate((true & guessed, guessed, true)):
            for chunk in chunk_set:
                counts[chunk.type][column] += 1
    return dict(sorted(counts.items()))


def span_precision(counts: ArrayLike) -> NDArray[np.float64]:
    """Compute the share of correct chunks among the predicted chunks; (..., 3) to (...).

    The share is 0 if no chunk is predicted.
    """
    counts = np.asarray(counts, dtype=np.float64)
    return counts[..., 0] / np.maximum(counts[..., 1], 1)


def span_recall(counts: ArrayLike) -> NDArray[np.float64]:
    """Compute the share of correct chunks among the labelled chunks; (..., 3) to (...).

    The share is 0 if no chunk is labelled.
    """
    counts = np.asarray(counts, dtype=np.float64)
    return counts[..., 0] / np.maximum(counts[..., 2], 1)


def span_f1(counts: ArrayLike) -> NDArray[np.float64]:
    """Compute the harmonic mean of precision and recall; (..., 3) to (...).

    F1 is 0 if no chunk is correct.
    """
    counts = np.asarray(counts, dtype=np.float64)
    return 2 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)


SHARES = {"precision": span_precision, "recall": span_recall, "f1": span_f1}


def span_metrics(labels: Sequence[Tags], predictions: Sequence[Tags]) -> dict[str, float]:
    """Compute `precision`, `recall` and `f1` over all chunks of all sequences, as shares.

    The first line of conlleval's output contains the same numbers.

    Args:
        labels, predictions: for each sentence, the tags of its words; labels and predictions have equal lengths.
    """
    counts = span_counts(labels, predictions).sum(axis=0)
    return {name: float(metric(counts)) for name, metric in SHARES.items()}


def _pairs(labels: Sequence[Tags], predictions: Sequence[Tags]) -> list[tuple[set[Chunk], set[Chunk]]]:
    if len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labelled sequences but {len(predictions)} predictions")
    for number, (true, guessed) in enumerate(zip(labels, predictions, strict=True)):
        if len(true) != len(guessed):
            raise ValueError(f"sequence {number} has {len(true)} labels but {len(guessed)} predictions")
    return [(set(chunks(true)), set(chunks(guessed))) for true, guessed in zip(labels, predictions, strict=True)]
