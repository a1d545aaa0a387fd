"""Measure overlap: the share of test data that also occurs in the training data.

A line or an example overlaps if the training data contain the same words in the same order. An n-gram is n consecutive
words within a unit of the corpus (a line or a document). Words are separated by white space; case and punctuation are
significant. GPT-3's authors (Brown et al. 2020, appendix C) also use n-grams of 13 words, but ignore case and
punctuation.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retable.corpora.text import read_lines

N = 13  # words per n-gram, as in the filter of GPT-3's training text
MOST = 10_000_000  # number of checked characters of the test text, which are held in memory
BLOCK = 1 << 18  # words of the training text that are hashed at a time
UNIT_END = 0  # word id that marks the end of a unit

Answered = tuple[Hashable, Hashable | None]  # the question and the answer of an example


def text_overlap(train: Path, test: Path, unit: str, n: int = N) -> dict[str, float]:
    """Compute the shares of a test text's lines and n-grams that occur in a training text.

    Each occurrence of a repeated line or n-gram counts; blank lines do not count. Only the first MOST characters of
    the test text are checked. If the test text has no lines, the result has no share of lines; if the test text has no
    n-grams, the result has no share of n-grams.

    Only the test text is held in memory, which needs about 100 MB. N-grams are compared by 64-bit hashes. With two
    million n-grams of the test text and 100 million of the training text, the probability of a false match is about 1
    in 100,000.

    Args:
        unit: `line` or `document`; n-grams do not cross the end of a unit.
        n: number of words per n-gram.
    """
    tested, size, vocabulary, ids = Counter[str](), 0, {"": UNIT_END}, array("q")
    for words in _runs(test, unit):
        ids.extend(vocabulary.setdefault(word, len(vocabulary)) for word in words or [""])
        if words:
            tested[line := " ".join(words)] += 1
            size += len(line) + 1
        if size > MOST:
            break
    grams = _Grams(vocabulary, np.frombuffer(ids, np.int64), n)
    seen, block = set[str](), list[str]()
    for words in _runs(train, unit):
        block += words or [""]
        if words and (line := " ".join(words)) in tested:
            seen.add(line)
        if len(block) >= BLOCK:
            grams.find(block)
            block = block[len(block) - n + 1 :]
    grams.find(block)
    shares = {}
    if tested:
        shares["overlap_lines"] = sum(tested[line] for line in seen) / tested.total()
    if grams.total:
        shares[f"overlap_{n}grams"] = grams.n_shared / grams.total
    return shares


def example_overlap(train: Iterable[Answered], test: Iterable[Answered]) -> dict[str, float]:
    """Compute `overlap_examples`, the share of test examples whose question occurs in the training examples.

    A second share, `overlap_contradicted`, counts the test examples whose question occurs in training, but never with
    the same answer. `overlap_contradicted` is missing from the result if no test example has an answer.

    Args:
        train, test: pairs of question and answer; the answer is None for examples without an answer.
    """
    tested = [*test]
    test_questions = {question for question, _ in tested}
    answers = defaultdict[Hashable, set[Hashable]](set)
    for question, answer in train:
        if question in test_questions:
            answers[question].add(answer)
    known = [(answer, answers[question]) for question, answer in tested if question in answers]
    shares = {"overlap_examples": len(known) / len(tested)}
    if any(answer is not None for _, answer in tested):
        contradicted = sum(answer is not None and answer not in of for answer, of in known)
        shares["overlap_contradicted"] = contradicted / len(tested)
    return shares


def _runs(path: Path, unit: str) -> Iterator[list[str]]:
    """Yield the words of each line of a file, and an empty list at the end of each unit."""
    for line in read_lines(path):
        words = line.split()
        yield words
        if words and unit == "line":
            yield []


class _Grams:
    """The n-grams of a test text, with a mark for each n-gram that occurs in another text."""

    def __init__(self, vocabulary: Mapping[str, int], ids: NDArray[np.int64], n: int):
        random = np.random.default_rng(0)
        self._codes = random.integers(2**64, size=len(vocabulary), dtype=np.uint64)  # a random number for each word
        # `_factors`: a random odd number for each position in the n-gram.
        self._factors = random.integers(2**63, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._vocabulary = vocabulary
        self._known, self._counts = np.unique(self._hashes(ids), return_counts=True)
        self._is_shared = np.zeros(len(self._known), bool)

    @property
    def total(self) -> int:
        return int(self._counts.sum())

    @property
    def n_shared(self) -> int:
        return int(self._counts[self._is_shared].sum())

    def find(self, words: list[str]) -> None:
        """Mark the n-grams that occur in `words`, a part of another text."""
        ids = np.fromiter(map(self._vocabulary.get, words, repeat(UNIT_END)), np.int64, len(words))
        hashes = self._hashes(ids)
        if self.total and len(hashes):
            places = np.searchsorted(self._known, hashes).clip(max=len(self._known) - 1)
            self._is_shared[places[self._known[places] == hashes]] = True

    def _hashes(self, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Compute the hashes of all n-grams without unit ends and unknown words, whose id is UNIT_END."""
        n = len(self._factors)
        ends = np.concatenate([[0], np.cumsum(ids == UNIT_END)])
        starts = np.flatnonzero(ends[n:] == ends[:-n]) if len(ids) >= n else np.empty(0, np.int64)
        hashes = np.zeros(len(starts), np.uint64)
        for place, factor in enumerate(self._factors):
            hashes += self._codes[ids[starts + place]] * factor
        return hashes
