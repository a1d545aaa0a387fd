"""A6: words as character ids, ELMo's input (Peters et al. 2018): 262 symbols, 50 a word.

A word is its UTF-8 bytes between a begin and an end mark, padded. The ids are AllenNLP's and those of the published
weights, whose embedding has 262 rows: bilm-tf numbers the 261 symbols 0 to 260 and adds 1 to each when it makes a
batch, where 0 is a place without a word. So bytes are 1 to 256 here, and an array of zeros masks itself.
"""

from collections.abc import Sequence

import numpy as np

from retable.core.errors import UsageError

N_SYMBOLS = 262
LENGTH = 50  # of a word, with its two marks
MASK, BEGIN_OF_SENTENCE, END_OF_SENTENCE, BEGIN_OF_WORD, END_OF_WORD, PADDING = 0, 257, 258, 259, 260, 261
SENTENCE_MARKS = {"<S>": BEGIN_OF_SENTENCE, "</S>": END_OF_SENTENCE}


def encode_words(words: Sequence[str]) -> np.ndarray:
    """(n, 50) int16 ids of `words`: of each its first 48 bytes. The words `<S>` and `</S>` are the sentence's marks.

    Raises UsageError for a lone surrogate.
    """
    try:
        pieces = [word.encode()[: LENGTH - 2] for word in words]
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the word {error.object!r} holds a lone surrogate, which is no character; read the text as UTF-8"
        ) from None
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    ids = np.full((len(pieces), LENGTH), PADDING, dtype=np.int16)
    ids[:, 0] = BEGIN_OF_WORD
    column = np.arange(LENGTH)
    ids[(column > 0) & (column <= lengths[:, None])] = (
        np.frombuffer(b"".join(pieces), dtype=np.uint8).astype(np.int16) + 1
    )
    ids[np.arange(len(pieces)), lengths + 1] = END_OF_WORD
    for word, mark in SENTENCE_MARKS.items():
        ids[[i for i, other in enumerate(words) if other == word]] = mark_row(mark)
    return ids


def encode_sentence(words: Sequence[str]) -> np.ndarray:
    """(n + 2, 50): `words` between the marks that begin and end a sentence."""
    return encode_words(["<S>", *words, "</S>"])


def mark_row(mark: int) -> np.ndarray:
    """(50,): a sentence's mark, which stands where a word's only byte would."""
    row = np.full(LENGTH, PADDING, dtype=np.int16)
    row[:3] = BEGIN_OF_WORD, mark, END_OF_WORD
    return row


def decode_words(ids: np.ndarray) -> list[str]:
    """The words again, where they had 48 bytes at most; of longer ones the whole characters among 48. Zeros go."""
    names = {mark: name for name, mark in SENTENCE_MARKS.items()}
    rows = ids[ids[:, 0] != MASK]
    ends = (rows == END_OF_WORD).argmax(axis=1)
    words = []
    for row, end in zip(rows, ends, strict=True):
        inner = row[1:end]
        is_mark = end == 2 and int(inner[0]) in names
        words.append(
            names[int(inner[0])] if is_mark else (inner - 1).astype(np.uint8).tobytes().decode(errors="ignore")
        )
    return words
