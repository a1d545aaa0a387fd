"""Chunks of tagged sequences, and their precision, recall and F1 as conlleval counts them (the CoNLL shared tasks of
2000, 2002 and 2003).

A tag is O, or one of B, I, E and S with a hyphen and a type; L, U, M and W are letters of other schemes for E, S, I and
S. The letter comes first: `PER-B`, and a type alone, are refused. Chunks are read alike whatever the scheme, IOB1, IOB2
or IOBES, and however malformed a sequence is: a tag continues a chunk only if it has its type, and so an I behind O, or
behind another type, begins one. Of B, I and O, and of E and I, these are the rules of the Perl script. It knows no S,
and no B behind an E, so that it would join neighbours of one type in IOBES: here a chunk ends behind E and S, and S
begins one, as in the script's ports.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retable.core.errors import TextError, UsageError

Scheme = Literal["IOB1", "IOB2", "IOBES"]
Tags = Sequence[str]

# BILOU's last and unit, BMES's middle, and BMEWO's word that is a whole chunk, in letters of IOBES.
OF_OTHER_SCHEMES = {"L": "E", "U": "S", "M": "I", "W": "S"}


class Chunk(NamedTuple):
    type: str
    start: int
    end: int  # behind its last word


def chunks(tags: Tags) -> list[Chunk]:
    """The chunks of a sequence, in order. UsageError for a tag without one of the letters first."""
    found, start = [], 0
    last, last_kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        letter = OF_OTHER_SCHEMES.get(letter, letter)
        if letter not in ("O", "B", "I", "E", "S"):
            raise TextError(_not_a_tag(tag), tag, tag)
        parted = letter in "OBS" or last in "OES" or kind != last_kind
        if parted and last != "O":
            found.append(Chunk(last_kind, start, place))
        if parted and letter != "O":
            start = place
        last, last_kind = letter, kind
    return found


def _not_a_tag(tag: str) -> str:
    kind, _, letter = tag.rpartition("-")
    instead = f"{letter}-{kind}" if kind and letter in ("B", "I", "E", "S", *OF_OTHER_SCHEMES) else f"B-{tag or 'NP'}"
    return (
        f"{tag!r} is not a tag of chunks; write O or, as in {instead}, one of B, I (M), E (L) and S (U, W), a hyphen, "
        "and the type"
    )


def write_tags(found: Sequence[Chunk], length: int, scheme: Scheme) -> list[str]:
    """The tags of a sequence of `length` words with these chunks, in order."""
    if scheme not in get_args(Scheme):
        raise UsageError(f"there is no scheme={scheme}; write one of {', '.join(get_args(Scheme))}")
    tags = ["O"] * length
    before = Chunk("", -1, -1)
    for chunk in found:
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
    """The same chunks in `scheme`. What is malformed is mended: the chunks are those that conlleval sees."""
    return write_tags(chunks(tags), len(tags), scheme)


def span_counts(labels: Sequence[Tags], predictions: Sequence[Tags]) -> NDArray[np.int64]:
    """(n, 3): of each sequence the chunks that are right in place and type, those predicted, and those labelled."""
    counts = [(len(true & guessed), len(guessed), len(true)) for true, guessed in _pairs(labels, predictions)]
    return np.array(counts, dtype=np.int64).reshape(-1, 3)


def span_counts_by_type(labels: Sequence[Tags], predictions: Sequence[Tags]) -> dict[str, NDArray[np.int64]]:
    """The same three counts (3,) over all sequences, by the chunks' type."""
    counts: dict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros(3, dtype=np.int64))
    for true, guessed in _pairs(labels, predictions):
        for column, found in enumerate((true & guessed, guessed, true)):
            for chunk in found:
                counts[chunk.type][column] += 1
    return dict(sorted(counts.items()))


def span_precision(counts: ArrayLike) -> NDArray[np.float64]:
    """The share of right chunks among those predicted, 0 without any; (..., 3) to (...)."""
    counts = np.asarray(counts, dtype=np.float64)
    return counts[..., 0] / np.maximum(counts[..., 1], 1)


def span_recall(counts: ArrayLike) -> NDArray[np.float64]:
    """The share of those labelled that are found, 0 without any; (..., 3) to (...)."""
    counts = np.asarray(counts, dtype=np.float64)
    return counts[..., 0] / np.maximum(counts[..., 2], 1)


def span_f1(counts: ArrayLike) -> NDArray[np.float64]:
    """The harmonic mean of precision and recall, 0 where nothing is right; (..., 3) to (...)."""
    counts = np.asarray(counts, dtype=np.float64)
    return 2 * counts[..., 0] / np.maximum(counts[..., 1] + counts[..., 2], 1)


SHARES = {"precision": span_precision, "recall": span_recall, "f1": span_f1}


def span_metrics(labels: Sequence[Tags], predictions: Sequence[Tags]) -> dict[str, float]:
    """`precision`, `recall` and `f1` over all chunks of all sequences: conlleval's first line, as shares."""
    counts = span_counts(labels, predictions).sum(axis=0)
    return {name: float(metric(counts)) for name, metric in SHARES.items()}


def _pairs(labels: Sequence[Tags], predictions: Sequence[Tags]) -> list[tuple[set[Chunk], set[Chunk]]]:
    if len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labelled sequences but {len(predictions)} predictions")
    for number, (true, guessed) in enumerate(zip(labels, predictions, strict=True)):
        if len(true) != len(guessed):
            raise ValueError(f"sequence {number} has {len(true)} labels but {len(guessed)} predictions")
    return [(set(chunks(true)), set(chunks(guessed))) for true, guessed in zip(labels, predictions, strict=True)]
