"""Count words, even if the different words do not fit into memory."""

import tempfile
from collections import Counter
from collections.abc import Container, Iterable
from contextlib import ExitStack
from itertools import chain
from typing import TextIO

TYPES = 1 << 20  # maximum number of different words that are counted in memory (about 200 MB)
PARTS = 128  # number of temporary files; the counts of each file are summed in memory, one file at a time


def frequent(lines: Iterable[Iterable[str]], min_count: int, known: Container[str] = ()) -> dict[str, int]:
    """Count the words that occur at least `min_count` times, or are in `known`.

    Whenever memory contains TYPES different words, the counts of these words are written to temporary files; all counts
    of a word are in the same file. At the end, only the result and the contents of one file are in memory. Words must
    not contain spaces or line ends.

    Args:
        lines: the list of words of each line.

    Returns: a mapping from words to counts; words with counts below `min_count` are left out unless they are in
        `known`.
    """
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        parts: list[TextIO] = []
        for words in lines:
            counts.update(words)
            if len(counts) >= TYPES:
                parts = parts or [stack.enter_context(_temporary()) for _ in range(PARTS)]
                _add(counts, parts)
                counts.clear()
        if parts:
            _add(counts, parts)
            counts.clear()
        counted = chain.from_iterable(_summed(part).items() for part in parts) if parts else counts.items()
        return {word: count for word, count in counted if count >= min_count or word in known}


def _temporary() -> TextIO:
    return tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")


def _add(counts: Counter[str], parts: list[TextIO]) -> None:
    for word, count in counts.items():
        parts[hash(word) % len(parts)].write(f"{word} {count}\n")


def _summed(part: TextIO) -> Counter[str]:
    part.seek(0)
    sums: Counter[str] = Counter()
    for line in part:
        word, _, count = line.rpartition(" ")
        sums[word] += int(count)
    return sums
