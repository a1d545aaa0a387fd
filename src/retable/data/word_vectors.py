"""The vectors of a text's words, out of those that were trained on another text."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from retable.core.errors import UsageError


def vectors_of(
    text: Iterable[str], words: Sequence[str], vectors: np.ndarray, convention: Callable[[str], str]
) -> dict[str, np.ndarray]:
    """Of each word of `text` that has one: the vector of the word itself, or else of what `convention` makes of it.
    `vectors` (N, D) are those of `words` (N). UsageError where no word of the text has one."""
    rows = {word: row for row, word in enumerate(words)}
    found = {}
    for word in dict.fromkeys(text):
        row = rows.get(word, rows.get(convention(word)))
        if row is not None:
            found[word] = vectors[row]
    if not found:
        raise UsageError("none of the task's words has a vector; give embedding= vectors of its language")
    return found
