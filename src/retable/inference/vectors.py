"""Use of word vectors: similarity, neighbours, analogies.

Dimensions: n words, D vector size, V vocabulary size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retable.core.errors import UsageError
from retable.evaluation.neighbours import nearest
from retable.evaluation.word_vectors import WordVectors, unit
from retable.inference.loaded import listed
from retable.inference.systems import load_vectors, read_config


class Vectors:
    """Word vectors of a cell, or of a file in a format of `vector_files`.

    words: the words that have a vector, in order of falling frequency.
    """

    can = ("vectors", "similarity", "neighbours", "analogy")

    def __init__(self, folder: Path, system: WordVectors):
        self.folder, self.system, self.words = folder, system, list(system.words)

    @classmethod
    def of_file(cls, path: Path) -> "Vectors":
        system = load_vectors(path)
        assert isinstance(system, WordVectors)
        return cls(path, system)

    @property
    def config(self) -> Any:
        """The resolved settings of the cell."""
        return read_config(self.folder)

    def vectors(self, words: str | Sequence[str]) -> np.ndarray:
        """Return the vectors of words, (n, D).

        Raises: UsageError: a word has no vector.
        """
        words = listed(words)
        vectors, known = self.system.lookup(words)
        if not known.all():
            missing = [word for word, is_known in zip(words, known, strict=True) if not is_known]
            raise UsageError(f"{self.folder} has no vector of {', '.join(missing)}; choose words of its training text")
        return vectors

    def similarity(self, one: str, other: str) -> float:
        """Return the cosine of the vectors of two words.

        Raises: UsageError: a word has no vector.
        """
        first, second = unit(self.vectors([one, other]))
        return float(first @ second)

    def neighbours(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """Return the `k` nearest words with their cosines, nearest first.

        Raises: UsageError: the word has no vector.
        """
        return nearest(self.system, [word], k)[0]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """Return the words that are to `c` as `b` is to `a`, by 3CosAdd.

        Returns: the `k` words nearest to b − a + c, except `a`, `b` and `c`, each with its cosine.
        """
        one, two, three = unit(self.vectors([a, b, c]))
        scores = unit(self.system.vectors) @ unit((two - one + three)[None])[0]
        excluded = {a, b, c}
        best = [i for i in np.argsort(-scores, kind="stable")[: k + 3] if self.words[i] not in excluded]
        return [(self.words[i], float(scores[i])) for i in best[:k]]

    def __repr__(self) -> str:
        return f"<Vectors {self.folder}: {', '.join(self.can)}>"
