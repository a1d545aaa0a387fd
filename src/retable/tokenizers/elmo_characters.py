"""Words as character ids, the input of ELMo (Peters et al. 2018): 50 ids per word, from 262 different ids.

A word is encoded as a begin mark, the word's UTF-8 bytes and an end mark, padded to 50 ids. The ids are the same as in
AllenNLP, and match the 262 rows of the published embedding. Bytes have the ids 1 to 256, and a row of zeros means no
word. (bilm-tf numbers 261 symbols from 0; in batches, it adds 1 to these numbers, and 0 means no word.)

System A6 of docs/systems.yaml.
"""

from collections.abc import Sequence

import numpy as np

from retable.core.errors import UsageError

N_SYMBOLS = 262
LENGTH = 50  # number of ids per word, including the begin mark and the end mark
MASK, BEGIN_OF_SENTENCE, END_OF_SENTENCE, BEGIN_OF_WORD, END_OF_WORD, PADDING = 0, 257, 258, 259, 260, 261
SENTENCE_MARKS = {"<S>": BEGIN_OF_SENTENCE, "</S>": END_OF_SENTENCE}


def encode_words(words: Sequence[str]) -> np.ndarray:
    """Encode the first 48 bytes of each word as ids, (n, 50) int16. `<S>` and `</S>` become the sentence marks.

    Raises: UsageError: a word contains a lone surrogate.
    """
    try:
        pieces = [word.encode()[: LENGTH - 2] for word in words]
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the word {error.object!r} contains a lone surrogate, which is not a character; read the text as UTF-8"
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
    """Encode a sentence of n words as ids (n + 2, 50); the first and the last row are sentence marks."""
    return encode_words(["<S>", *words, "</S>"])


def mark_row(mark: int) -> np.ndarray:
    """Return the ids (50,) of a sentence mark, which is encoded like a one-byte word."""
    row = np.full(LENGTH, PADDING, dtype=np.int16)
    row[:3] = BEGIN_OF_WORD, mark, END_OF_WORD
    return row


def decode_words(ids: np.ndarray) -> list[str]:
    """Decode each row of ids to a word; rows of zeros, which mean no word, are skipped.

    Words of up to 48 bytes are restored exactly; longer words are cut after the last whole character within 48 bytes.
    """
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
