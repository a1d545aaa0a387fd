"""Conversion of a tokenized text to words of the built-in grammar, for benchmarks."""

from collections.abc import Iterator

import numpy as np

from retable.core.errors import UsageError
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer

LINE_END = "\n"  # the grammar's token for a line's end


def words_of(tokenizer: Tokenizer) -> list[str]:
    """Return the grammar's word for each token id.

    Raises: UsageError: the tokenizer's tokens are not words.
    """
    if tokenizer.words[tokenizer.boundary] != END_OF_LINE:
        raise UsageError("the grammar needs tokens that are words; train this system with tokenizer=word")
    return [LINE_END if word == END_OF_LINE else word for word in tokenizer.words]


def spans(units: np.ndarray) -> Iterator[slice]:
    """Yield the slice of the token stream for each unit of text, given the table of units, (n_units, 5)."""
    ends = np.cumsum(units[:, 0])
    return map(slice, ends - units[:, 0], ends)
