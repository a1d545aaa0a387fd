"""Nearest neighbours of words, as in Table 7 of Collobert et al. 2011.

The paper is "Natural Language Processing (Almost) from Scratch".

Dimensions: V words, D vector size, n query words, K neighbours per query word.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.evaluation.word_vectors import WordVectors, unit

COLUMNS = 6  # number of query words in the paper's table and, by default, in this benchmark


class Neighbours:
    """A benchmark that writes the nearest neighbours of words to `neighbours.csv`.

    The neighbours depend only on the word vectors, so `inputs`, the list of further files, is empty.

    Args:
        words: the query words; None uses the words that `spread` chooses, from frequent to rare.
        neighbours: number of neighbours per word.
    """

    requires = WordVectors

    def __init__(self, words: Sequence[str] | None = None, neighbours: PositiveInt = 10) -> None:
        self.inputs: list[Path] = []
        if isinstance(words, str):
            raise UsageError(f"words={words} is a word, not a list; write benchmark.neighbours.words=[{words}]")
        self.words, self.neighbours = [str(word) for word in words or ()], neighbours

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """Write one row per neighbour, and return no metrics.

        Columns: the query word, its frequency rank (empty if it is not in the training text), the neighbour's rank from
            1, the neighbour, and the cosine of the neighbour and the query word.

        Raises: UsageError: a word has no vector.
        """
        words = self.words or spread(system.words)
        with (folder / "neighbours.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("word", "rank", "place", "neighbour", "cosine"))
            for word, nearby in zip(words, nearest(system, words, self.neighbours), strict=True):
                rank = system.rows[word] + 1 if word in system.rows else ""
                writer.writerows((word, rank, i, near, f"{cosine:.4f}") for i, (near, cosine) in enumerate(nearby, 1))
        return {}


def spread(words: Sequence[str]) -> list[str]:
    """Choose six words whose frequency ranks grow from √V in equal logarithmic steps.

    Most function words have ranks before √V.

    Table 7 of Collobert et al. has words of ranks 454 to 87,025, from 100,000 words.
    """
    v = len(words)
    ranks = v ** (0.5 + 0.5 * np.arange(COLUMNS) / COLUMNS)
    return [words[i] for i in dict.fromkeys(int(rank) - 1 for rank in ranks)] if v else []


def nearest(system: WordVectors, words: Sequence[str], k: int) -> list[list[tuple[str, float]]]:
    """Return the `k` words with the highest cosine to each of `words`, the nearest first.

    A word is not its own neighbour. Words with the same cosine are sorted by frequency.

    Raises: UsageError: a word has no vector.
    """
    vectors, known = system.lookup(words)
    if not known.all():
        unknown = ", ".join(word for word, is_known in zip(words, known, strict=True) if not is_known)
        raise UsageError(f"no vector for {unknown}; choose words of the training text")
    cosines = unit(vectors) @ unit(system.vectors).T  # (n, V)
    neighbours = []
    for word, row in zip(words, cosines, strict=True):
        others = [i for i in np.argsort(-row, kind="stable")[: k + 1] if system.words[i] != word][:k]
        neighbours.append([(system.words[i], float(row[i])) for i in others])
    return neighbours
