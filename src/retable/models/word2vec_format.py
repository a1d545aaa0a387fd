"""Word vectors in the text and binary formats of word2vec.c, which most tools read.

Files in both formats begin with a line `<words> <dimensions>`. In the text format, each word has a line `<word> <value>
…`. In the binary format, each word is followed by a space, the word's values as little-endian float32, and a line feed.
"""

import codecs
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import numpy as np

from retable.core.errors import UsageError, require_file


def write_word2vec(path: str | PathLike[str], words: Sequence[str], vectors: np.ndarray) -> None:
    """Write words and float32 `vectors` (n, d): in binary format if `path` ends in .bin, otherwise as UTF-8 text.

    The binary and the text format store float32 values exactly.

    Raises: UsageError: a word is empty, has ASCII white space, or occurs twice; or `vectors` does not have one row per
        word.
    """
    vectors = np.asarray(vectors, dtype="<f4")
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise UsageError(f"{len(words)} words need vectors of shape ({len(words)}, d), but got {vectors.shape}")
    for word in words:
        if word.encode().split() != [word.encode()]:  # no-break and ideographic spaces are allowed in words
            raise UsageError(f"the word {word!r} is empty or has white space, which the format does not allow")
    if len(set(words)) < len(words):
        raise UsageError(f"the word {_repeated(words)!r} occurs twice; give each word one vector")
    n_words, dimensions = vectors.shape
    binary = is_binary(path)
    values = " ".join(["%.9g"] * dimensions)  # nine digits are enough to restore any float32 exactly
    with open(path, "wb") as file:
        file.write(f"{n_words} {dimensions}\n".encode())
        for word, vector in zip(words, vectors, strict=True):
            row = vector.tobytes() if binary else (values % tuple(vector)).encode()
            file.write(word.encode() + b" " + row + b"\n")


def read_word2vec(path: str | PathLike[str]) -> tuple[list[str], np.ndarray]:
    """Read words and float32 vectors (n, d): in binary format if `path` ends in .bin, otherwise as text.

    A byte-order mark is ignored.

    Raises: UsageError: the file is missing or malformed.
    """
    require_file(path, "write the path of a file of word vectors")
    with open(path, "rb") as file:
        n_words, dimensions = _read_header(path, file.readline().removeprefix(codecs.BOM_UTF8))
        if n_words * dimensions > Path(path).stat().st_size:
            raise UsageError(f"{path}: the first line announces {n_words} words, but the file is too short for them")
        words: list[str] = []
        vectors = np.empty((n_words, dimensions), dtype=np.float32)
        read_row = _read_binary_row if is_binary(path) else _read_text_row
        for i in range(n_words):
            try:
                word, vectors[i] = read_row(file, dimensions)
                if word.encode().split() != [word.encode()] or not np.isfinite(vectors[i]).all():
                    raise ValueError(f"{word!r} is empty, has white space, or has a value that is not a finite number")
                words.append(word)
            except ValueError as error:  # UnicodeDecodeError is a ValueError too
                raise UsageError(f"{path}, word {i + 1} of {n_words}: {error}") from None
        if file.read().strip():
            raise UsageError(f"{path}: contains more than the {n_words} words that its first line announces")
    if len(set(words)) < n_words:
        raise UsageError(f"{path}: the word {_repeated(words)!r} occurs twice")
    return words, vectors


def is_binary(path: str | PathLike[str]) -> bool:
    return Path(path).suffix == ".bin"


def _read_header(path: str | PathLike[str], line: bytes) -> tuple[int, int]:
    try:
        n_words, dimensions = map(int, line.split())
    except ValueError:
        raise UsageError(
            f"{path}: the first line must be `<words> <dimensions>`, as in `3000 100`; GloVe's files lack this line"
        ) from None
    if n_words < 1 or dimensions < 1:
        raise UsageError(
            f"{path}: the first line announces {n_words} words of {dimensions} dimensions; both must be at least 1"
        )
    return n_words, dimensions


def _read_text_row(file: BinaryIO, dimensions: int) -> tuple[str, np.ndarray]:
    line = file.readline().decode()
    if not line:
        raise ValueError("the file ends before this word")
    word, *values = line.rstrip().split(" ")  # word2vec.c leaves a space at the end of a line
    if not word or len(values) != dimensions:
        raise ValueError(f"{len(values)} values after {word!r}, but the first line announces {dimensions}")
    return word, np.array(values).astype(np.float32)


def _read_binary_row(file: BinaryIO, dimensions: int) -> tuple[str, np.ndarray]:
    letters = bytearray()
    while (letter := file.read(1)) != b" ":
        if not letter:
            raise ValueError("the file ends before this word")
        letters += letter
    word = letters.decode().lstrip("\n")  # removes the line feed after the previous vector
    values = file.read(4 * dimensions)
    if len(values) < 4 * dimensions:
        raise ValueError(f"the file ends within the vector of {word!r}")
    return word, np.frombuffer(values, dtype="<f4")


def _repeated(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0]
