"""Look up pretrained vectors for the words of a text."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from retable.core.errors import UsageError


def vectors_of(
    text: Iterable[str], words: Sequence[str], vectors: np.ndarray, convention: Callable[[str], str]
) -> dict[str, np.ndarray]:
    """Return the vector of each word of `text` that has one: that of the word, otherwise that of `convention(word)`.

    Args:
        words: the words that have vectors, (N).
        vectors: their vectors, (N, D).
        convention: spells a word as `words` do, for example in lower case.

    Raises: UsageError: no word of the text has a vector.
    """
    rows = {word: row for row, word in enumerate(words)}
    result = {}
    for word in dict.fromkeys(text):
        row = rows.get(word, rows.get(convention(word)))
        if row is not None:
            result[word] = vectors[row]
    if not result:
        raise UsageError("none of the task's words has a vector; write embedding= vectors of the task's language")
    return result
