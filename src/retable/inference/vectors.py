"""Word vectors, used. n words, D dimensions, V words of the vocabulary."""

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
    """Word vectors of a cell, or of a file in word2vec's format.

    words: those that have one, the most frequent first.
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
        """The settings of the cell, resolved."""
        return read_config(self.folder)

    def vectors(self, words: str | Sequence[str]) -> np.ndarray:
        """The vectors (n, D). UsageError for a word that has none."""
        words = listed(words)
        found, known = self.system.lookup(words)
        if not known.all():
            missing = [word for word, its in zip(words, known, strict=True) if not its]
            raise UsageError(f"{self.folder} has no vector of {', '.join(missing)}; ask for words of its text")
        return found

    def similarity(self, one: str, other: str) -> float:
        """The cosine of two words."""
        first, second = unit(self.vectors([one, other]))
        return float(first @ second)

    def neighbours(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The `k` nearest words by cosine, the nearest first."""
        return nearest(self.system, [word], k)[0]

    def analogy(self, a: str, b: str, c: str, k: int = 1) -> list[tuple[str, float]]:
        """What is to `c` as `b` is to `a`, by 3CosAdd: the `k` words nearest to b − a + c but these three, with their
        scores."""
        one, two, three = unit(self.vectors([a, b, c]))
        scores = unit(self.system.vectors) @ unit((two - one + three)[None])[0]
        given = {a, b, c}
        best = [i for i in np.argsort(-scores, kind="stable")[: k + 3] if self.words[i] not in given]
        return [(self.words[i], float(scores[i])) for i in best[:k]]

    def __repr__(self) -> str:
        return f"<Vectors {self.folder}: {', '.join(self.can)}>"
