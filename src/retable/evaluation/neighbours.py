"""The nearest neighbours of some words, as in Table 7 of Collobert et al. 2011, "Natural Language Processing (Almost)
from Scratch".

V words, D dimensions, n words that are asked for, K neighbours of each.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.evaluation.word_vectors import WordVectors, unit

COLUMNS = 6  # of the paper's table, and of one that nobody chose the words of


class Neighbours:
    """Writes `neighbours.csv`; `inputs` are the files that the scores depend on: none.

    words: those to look at; None takes a spread from the frequent to the rare, see `spread`.
    """

    asks_for = WordVectors

    def __init__(self, words: Sequence[str] | None = None, neighbours: PositiveInt = 10) -> None:
        self.inputs: list[Path] = []
        if isinstance(words, str):
            raise UsageError(f"words={words} is one word, not a list; write benchmark.neighbours.words=[{words}]")
        self.words, self.neighbours = [str(word) for word in words or ()], neighbours

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """Write a row a neighbour: the word, its frequency rank (empty for one that the training text lacks), the
        neighbour's place from 1, the neighbour, the cosine. No metrics. UsageError for a word without a vector."""
        words = self.words or spread(system.words)
        with (folder / "neighbours.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("word", "rank", "place", "neighbour", "cosine"))
            for word, found in zip(words, nearest(system, words, self.neighbours), strict=True):
                rank = system.rows[word] + 1 if word in system.rows else ""
                writer.writerows((word, rank, i, near, f"{cosine:.4f}") for i, (near, cosine) in enumerate(found, 1))
        return {}


def spread(words: Sequence[str]) -> list[str]:
    """Six words at equal steps of the logarithm of their rank, from √V on: before stand the function words.

    The paper chose words of ranks 454 to 87,025 of 100,000.
    """
    v = len(words)
    ranks = v ** (0.5 + 0.5 * np.arange(COLUMNS) / COLUMNS)
    return [words[i] for i in dict.fromkeys(int(rank) - 1 for rank in ranks)] if v else []


def nearest(system: WordVectors, words: Sequence[str], k: int) -> list[list[tuple[str, float]]]:
    """For each of `words` the `k` nearest others by cosine, the nearest first, ties by frequency.

    UsageError for a word without a vector.
    """
    vectors, known = system.lookup(words)
    if not known.all():
        unknown = ", ".join(word for word, is_known in zip(words, known, strict=True) if not is_known)
        raise UsageError(f"no vector for {unknown}; choose words of the training text")
    cosines = unit(vectors) @ unit(system.vectors).T  # (n, V)
    found = []
    for word, row in zip(words, cosines, strict=True):
        others = [i for i in np.argsort(-row, kind="stable")[: k + 1] if system.words[i] != word][:k]
        found.append([(system.words[i], float(row[i])) for i in others])
    return found
