"""Word vectors as the benchmarks see them, whatever they were trained by.

V words, D dimensions, n words that are asked for.
"""

from collections.abc import Callable, Sequence

import numpy as np

from retable.core.errors import UsageError


class WordVectors:
    """Words in the order of falling frequency, a vector each.

    words: (V,), those of the training text. A word that the text never showed has no place here, even where the
        vocabulary is closed: it has what it was initialised with, and may neither ask nor answer.
    vectors: (V, D).
    compose: makes the vector (D,) of any other word, as fastText does from n-grams; None where there is no way.
    """

    def __init__(
        self, words: Sequence[str], vectors: np.ndarray, compose: Callable[[str], np.ndarray] | None = None
    ) -> None:
        if len(vectors) != len(words):
            raise UsageError(f"{len(vectors)} vectors for {len(words)} words; give one row a word, in order")
        self.words, self.vectors, self.compose = words, vectors, compose
        self.rows = {word: row for row, word in enumerate(words)}
        self.protocol = "unseen words from n-grams" if compose else "one vector a word"

    def lookup(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The vectors (n, D) of `words`, zeros for the unknown, and which are known, (n,) bool."""
        vectors = np.zeros((len(words), self.vectors.shape[1]), dtype=np.float32)
        for i, word in enumerate(words):
            if word in self.rows:
                vectors[i] = self.vectors[self.rows[word]]
            elif self.compose:
                vectors[i] = self.compose(word)
        return vectors, np.array([word in self.rows for word in words], dtype=bool) | vectors.any(axis=1)

    def first(self, n: int | None) -> "WordVectors":
        """The `n` most frequent words alone; all, where n is None."""
        return self if n is None else WordVectors(self.words[:n], self.vectors[:n], self.compose)

    def lowercased(self) -> "WordVectors":
        """In lower case; of words that become the same, the most frequent stays."""
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(word.lower(), row)
        return WordVectors(list(rows), self.vectors[list(rows.values())], self.compose)


def unit(vectors: np.ndarray) -> np.ndarray:
    """`vectors` (n, D) at length one in single precision; a zero vector stays."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
