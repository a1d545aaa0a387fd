"""The interface through which benchmarks use word vectors from any kind of training.

Dimensions: V words, D vector size, n query words.
"""

from collections.abc import Callable, Sequence

import numpy as np

from retable.core.errors import UsageError


class WordVectors:
    """Words, from frequent to rare, with one vector per word.

    Args:
        words: words of the training text, (V,). Vocabulary words that do not occur in the training text are excluded:
            their vectors are untrained, so they must not be queries or answers.
        vectors: (V, D).
        compose: a function that returns the vector, (D,), of any word that is not in `words`, as fastText does from
            n-grams; None if such words have no vectors.
    Raises: UsageError: the numbers of words and vectors differ.
    """

    def __init__(
        self, words: Sequence[str], vectors: np.ndarray, compose: Callable[[str], np.ndarray] | None = None
    ) -> None:
        if len(vectors) != len(words):
            raise UsageError(f"{len(vectors)} vectors for {len(words)} words; write one row per word, in order")
        self.words, self.vectors, self.compose = words, vectors, compose
        self.rows = {word: row for row, word in enumerate(words)}
        self.protocol = "unseen words from n-grams" if compose else "one vector a word"

    def lookup(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of `words`, (n, D), and whether each word has a vector, bool (n,).

        A word without a vector has zeros in the result.
        """
        vectors = np.zeros((len(words), self.vectors.shape[1]), dtype=np.float32)
        for i, word in enumerate(words):
            if word in self.rows:
                vectors[i] = self.vectors[self.rows[word]]
            elif self.compose:
                vectors[i] = self.compose(word)
        return vectors, np.array([word in self.rows for word in words], dtype=bool) | vectors.any(axis=1)

    def first(self, n: int | None) -> "WordVectors":
        """Return the vectors of the `n` most frequent words, or of all words if `n` is None."""
        return self if n is None else WordVectors(self.words[:n], self.vectors[:n], self.compose)

    def lowercased(self) -> "WordVectors":
        """Return the word vectors with all words in lower case.

        If two words become equal in lower case, the more frequent word is kept.
        """
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(word.lower(), row)
        return WordVectors(list(rows), self.vectors[list(rows.values())], self.compose)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale `vectors` (n, D) to length 1, in float32. Zero vectors are unchanged."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
