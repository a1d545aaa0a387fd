"""Look up pretrained vectors for the words of a text."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from retable.core.errors import UsageError


def vectors_of(
    text: Iterable[str], words: Sequence[str], vectors: np.ndarray, convention: Callable[[str], str]
) -> dict[str, np.ndarray]:
    """Look up each word of `text`, or `convention(word)` if the word is not found; words without a vector are omitted.

    Args:
        words: the N words that have vectors.
        vectors: the vectors of `words`, (N, D).
        convention: function that rewrites a word in the way that `words` are written, for example in lower case.

    Raises: UsageError: no word of the text has a vector.
    """
    rows = {word: row for row, word in enumerate(words)}
    result = {}
    for word in dict.fromkeys(text):
        row = rows.get(word, rows.get(convention(word)))
        if row is not None:
            result[word] = vectors[row]
    if not result:
        raise UsageError("none of the task's words has a vector; set embedding= to vectors of the task's language")
    return result
