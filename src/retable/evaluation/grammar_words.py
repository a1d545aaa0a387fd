"""A tokenized text in the words of the grammar that wrote it, for the benchmarks that ask the grammar."""

from collections.abc import Iterator

import numpy as np

from retable.core.errors import UsageError
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer

LINE_END = "\n"  # the token of a line's end, as the grammar calls it


def words_of(tokenizer: Tokenizer) -> list[str]:
    """The grammar's token of each id. UsageError where the tokenizer's tokens are not words."""
    if tokenizer.words[tokenizer.boundary] != END_OF_LINE:
        raise UsageError("the grammar reads words, and this system writes other tokens; train it with tokenizer=word")
    return [LINE_END if word == END_OF_LINE else word for word in tokenizer.words]


def spans(units: np.ndarray) -> Iterator[slice]:
    """Where each unit of text stands in the stream, from the table of units (n_units, 3)."""
    ends = np.cumsum(units[:, 0])
    return map(slice, ends - units[:, 0], ends)
