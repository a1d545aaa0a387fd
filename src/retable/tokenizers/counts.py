"""Words and how often they occur, of more different ones than memory holds."""

import heapq
import tempfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TextIO

TYPES = 1 << 19  # different words that are counted in memory: some 100 MB
RUNS = 64  # files that are open at a time


def frequent(lines: Iterable[Iterable[str]], min_count: int, known: Container[str] = ()) -> dict[str, int]:
    """How often each word occurs of those that do so `min_count` times or more, or are `known`.

    Beyond TYPES different words the counts so far go to a sorted temporary file, and all these are merged at the end:
    only the words of the result are in memory together. A word holds neither a space nor a line end.
    """
    counts: Counter[str] = Counter()
    runs: list[TextIO] = []
    try:
        for words in lines:
            counts.update(words)
            if len(counts) >= TYPES:
                runs.append(_written(sorted(counts.items())))
                counts.clear()
            if len(runs) == RUNS:
                merged = _written(_merged(map(_read, runs)))
                _close(runs)
                runs.append(merged)
        counted = _merged([*map(_read, runs), sorted(counts.items())]) if runs else counts.items()
        return {word: count for word, count in counted if count >= min_count or word in known}
    finally:
        _close(runs)


def _merged(runs: Iterable[Iterable[tuple[str, int]]]) -> Iterator[tuple[str, int]]:
    """The sums over sorted runs, sorted."""
    for word, of_word in groupby(heapq.merge(*runs), key=itemgetter(0)):
        yield word, sum(count for _, count in of_word)


def _written(counts: Iterable[tuple[str, int]]) -> TextIO:
    file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115, who reads it closes it
    file.writelines(f"{word} {count}\n" for word, count in counts)
    return file


def _read(run: TextIO) -> Iterator[tuple[str, int]]:
    run.seek(0)
    for line in run:
        word, _, count = line.rpartition(" ")
        yield word, int(count)


def _close(runs: list[TextIO]) -> None:
    while runs:
        runs.pop().close()
