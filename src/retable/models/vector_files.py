"""Files of word vectors: the text and binary formats of word2vec.c, GloVe's text format, and fastText's binary format.

word2vec's files begin with a line `<words> <dimensions>`. In the text format, which is also that of fastText's `.vec`,
each word has a line `<word> <value> …`. GloVe's files are the same without the first line. In the binary format, each
word is followed by a space, the word's values as little-endian float32, and a line feed.

fastText's own binary format contains a whole model. The vector of a word is the mean of the vectors of the word and of
its character n-grams, as in fastText's command `print-word-vectors` (Bojanowski et al. 2017).

Words are read as gensim reads them: a space, or here a tab, separates a word from its values, and the first vector of
a repeated word is used. gensim cannot read the words with spaces in GloVe's largest file, such as `. . .`. Words with
white space in ASCII are left out here, because no text that is split at white space contains them.
"""

import codecs
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from retable.core.compressed import open_compressed
from retable.core.errors import UsageError, warn

FORMATS = "word vectors end in .txt, .vec or .bin, or in .gz or .zip if they are compressed"
_FASTTEXT = struct.pack("<i", 793712314)  # the first bytes of fastText's binary files
_SUPERVISED = 3  # number of fastText's supervised models
_END_OF_SENTENCE = "</s>"  # since 2017, fastText computes no n-grams of this word; gensim does
_WIDEST = 1_000_000  # largest number of dimensions; a larger number is a sign of another format
_LONGEST = 10_000  # largest number of bytes of a word; word2vec.c cuts words at 100 bytes
_LONGEST_VALUE = 50  # largest number of bytes of a value in a text file, on average; float64 needs 25
_PART = 1 << 24  # number of bytes that are read at a time
_MOST_ODD = 0.01  # largest share of words that are not UTF-8, or have spaces; a larger share is a sign of damage

Row = tuple[bytes, np.ndarray]  # a word, and its vector of shape (D,)


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


def read_vectors(path: str | PathLike[str]) -> tuple[list[str], np.ndarray]:
    """Read words and float32 vectors (n, D) from a file in any of the formats of this module.

    A file whose name ends in `.bin` is binary; `.gz` and archives are unpacked, see `open_compressed`. A byte-order
    mark is ignored. Bytes that are not UTF-8 are replaced by backslashes and digits, as gensim does for fastText's
    files: some programs cut long words within a letter. A warning lists the numbers of words that were changed or left
    out.

    Raises: UsageError: the file is missing, malformed, truncated, or in another encoding or format.
    """
    with (
        open_compressed(path, "write the path of a file of word vectors") as (file, name),
        np.errstate(over="ignore"),  # values beyond float32 become infinite, which is refused
    ):
        first = file.read(len(_FASTTEXT))
        file.seek(0)
        # Files of fastText before 2017 begin with the number of dimensions, as an int32.
        if first == _FASTTEXT or (is_binary(name) and first[2:] == b"\0\0"):
            rows = _fasttext_rows(path, file)
        else:
            rows = _binary_rows(path, file) if is_binary(name) else _text_rows(path, file)
        words, vectors = _collected(path, rows)
    if len(bad := np.flatnonzero(~np.isfinite(vectors).all(axis=1))):
        raise UsageError(f"{path}: the vector of {words[bad[0]]!r} has a value that is not a finite number")
    return words, vectors


def is_binary(path: str | PathLike[str]) -> bool:
    return Path(path).suffix.lower() == ".bin"


def _collected(path: str | PathLike[str], rows: Iterator[Row]) -> tuple[list[str], np.ndarray]:
    """Return the words and vectors of all rows, without repeated words and words with white space."""
    words, values, dimensions = dict[str, None](), bytearray(), 0
    n_rows, repeated, spaced, damaged = 0, list[str](), list[str](), list[str]()
    for letters, vector in rows:
        n_rows, dimensions = n_rows + 1, len(vector)
        word = letters.decode(errors="backslashreplace")
        if word.encode() != letters:
            damaged.append(word)
        if letters.split() != [letters]:
            spaced.append(word)
        elif word in words:
            repeated.append(word)
        else:
            words[word] = None
            values += vector.tobytes()
    most = max(1, _MOST_ODD * n_rows)
    if len(damaged) > most:
        raise UsageError(
            f"{path}: {len(damaged):,} of {n_rows:,} words are not UTF-8, such as {damaged[0]!r}; convert the file, "
            "for example with iconv -f LATIN1 -t UTF-8"
        )
    if len(spaced) > most:
        raise UsageError(
            f"{path}: {len(spaced):,} of {n_rows:,} words have white space, such as {spaced[0]!r}, so the file is "
            "damaged; download or copy it again"
        )
    if not words:
        raise UsageError(f"{path} has no words; write another file")
    kinds = {"left out, repeated": repeated, "left out, with spaces": spaced, "not UTF-8": damaged}
    if notes := [f"{kind}: {len(some):,} ({some[0]!r})" for kind, some in kinds.items() if some]:
        warn(f"{path}, {n_rows:,} words; {'; '.join(notes)}")
    return [*words], np.frombuffer(values, dtype="<f4").reshape(len(words), dimensions).astype(np.float32, copy=False)


def _sizes(path: str | PathLike[str], line: bytes) -> tuple[int, int] | None:
    """Return the numbers of words and dimensions if a line is the first line of a word2vec file, otherwise None."""
    fields = line.split()
    if len(fields) != 2 or not all(re.fullmatch(rb"[+-]?\d{1,18}", field) for field in fields):
        return None
    n_words, dimensions = map(int, fields)
    if n_words < 1 or not 1 <= dimensions <= _WIDEST:
        raise UsageError(
            f"{path}: the first line announces {n_words} words of {dimensions} dimensions; write at least 1 word, and "
            f"1 to {_WIDEST} dimensions"
        )
    return n_words, dimensions


def _text_rows(path: str | PathLike[str], file: BinaryIO) -> Iterator[Row]:
    first = file.readline(_PART).removeprefix(codecs.BOM_UTF8)
    if b"\0" in first or first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UsageError(
            f"{path} is not text in UTF-8; convert UTF-16 with iconv -f UTF-16 -t UTF-8, and let the name of a binary "
            "file end in .bin"
        )
    sizes = _sizes(path, first)
    if sizes is None:
        dimensions = len(_fields(first)) - 1
        if dimensions < 1 or _number(_fields(first)[-1]) is None:
            raise UsageError(
                f"{path}: the first line must be `<words> <dimensions>`, as in `3000 100`, or a word and its values; "
                f"{FORMATS}"
            )
        total, expected, begun = "", f"the first line has {dimensions}", [first]
    else:
        n_words, dimensions = sizes
        total, expected, begun = f" of {n_words}", f"the first line announces {dimensions}", []
    longest, number = _LONGEST + _LONGEST_VALUE * dimensions, 0
    for line in chain(begun, iter(partial(file.readline, longest), b"")):
        if len(line) == longest:
            raise UsageError(
                f"{path}, word {number + 1}{total}: the line has {longest} bytes or more, but {expected} values"
            )
        if not (fields := _fields(line)):
            continue
        if sizes and number == n_words:
            raise UsageError(f"{path}: contains more than the {n_words} words that its first line announces")
        number += 1
        word, values = fields[:-dimensions], fields[-dimensions:]
        # A field that is not a number after the first field shows that the word has spaces.
        if not word or (len(word) > 1 and None not in map(_number, word[1:])):
            message = (
                f"{path}, word {number}{total}: {len(fields) - 1} values after {_shown(fields[0])}, but {expected}"
            )
            if any(byte < 32 and byte not in b"\t\r\n" for byte in line):
                message += "; let the name of a file in word2vec's binary format end in .bin"
            raise UsageError(message)
        try:
            vector = np.array(values).astype(np.float32)
            if b"_" in line and any(b"_" in value for value in values):  # Python and NumPy read 1_0 as 10
                raise ValueError
        except ValueError:
            wrong = next(value for value in values if _number(value) is None)
            raise UsageError(
                f"{path}, word {number}{total}: {_shown(wrong)} after {_shown(word[0])} is not a number"
            ) from None
        yield b" ".join(word), vector
    if sizes and number < n_words:
        raise UsageError(f"{path}, word {number + 1}{total}: the file ends before this word")


def _binary_rows(path: str | PathLike[str], file: BinaryIO) -> Iterator[Row]:
    if (sizes := _sizes(path, file.readline(_LONGEST).removeprefix(codecs.BOM_UTF8))) is None:
        raise UsageError(
            f"{path}: the first line must be `<words> <dimensions>` in word2vec's binary format; let the name of a "
            "text file end in .txt"
        )
    n_words, dimensions = sizes
    start = file.tell()
    fields = file.readline(100 * dimensions + _LONGEST).split()
    if len(fields) > dimensions and None not in map(_number, fields[-dimensions:]):
        raise UsageError(f"{path} is text, but its name ends in .bin; let the name end in .txt")
    file.seek(start)
    for number in range(1, n_words + 1):
        letters = bytearray()
        while (letter := file.read(1)) != b" ":
            if not letter:
                raise UsageError(f"{path}, word {number} of {n_words}: the file ends before this word")
            if len(letters) == _LONGEST:
                raise UsageError(
                    f"{path}, word {number} of {n_words}: the word has more than {_LONGEST} bytes, so the file is not "
                    f"in word2vec's binary format; {FORMATS}"
                )
            letters += letter
        word = bytes(letters).lstrip(b"\n")  # removes the line feed after the previous vector
        if word.split() != [word]:
            raise UsageError(
                f"{path}, word {number} of {n_words}: {_shown(word)} is empty or has white space, so the file is "
                "damaged; download or copy it again"
            )
        values = file.read(4 * dimensions)
        if len(values) < 4 * dimensions:
            raise UsageError(f"{path}, word {number} of {n_words}: the file ends within the vector of {_shown(word)}")
        yield word, np.frombuffer(values, dtype="<f4")
    while rest := file.read(_PART):  # in parts, since a compressed file may have more bytes than the memory
        if rest.strip():
            raise UsageError(f"{path}: contains more than the {n_words} words that its first line announces")


def _fasttext_rows(path: str | PathLike[str], file: BinaryIO) -> Iterator[Row]:
    """Yield the words of a fastText model and their vectors. The model's labels are skipped."""
    from retable.models.fasttext import ngram_hashes  # imported here, because it imports torch

    def take(size: int) -> bytearray:
        content = bytearray()
        while len(content) < size:  # in parts, since a damaged file may announce more bytes than the memory has
            if not (part := file.read(min(size - len(content), _PART))):
                raise UsageError(f"{path}: the file of fastText ends too early; download or copy it again")
            content += part
        return content

    def read(form: str) -> tuple[Any, ...]:
        return struct.unpack(form, take(struct.calcsize(form)))

    is_new = read("<4s")[0] == _FASTTEXT
    version = read("<i")[0] if is_new else 0
    if not is_new:
        file.seek(0)
    dimensions, *_, kind, buckets, min_n, max_n, _, _ = read("<12id")
    if kind == _SUPERVISED and version == 11:
        max_n = 0  # as in fastText's code: such models have no n-grams of characters
    n_entries, n_words, _, _ = read("<3iq")
    n_pruned = read("<q")[0] if is_new else 0
    entries = []
    for _ in range(n_entries):
        letters = bytearray()
        while (letter := file.read(1) or take(1)) != b"\0":
            if len(letters) == _LONGEST:
                raise UsageError(f"{path}: the file of fastText is damaged; download or copy it again")
            letters += letter
        read("<qb")  # the frequency, and whether the entry is a label
        entries.append(bytes(letters))
    is_quantised = n_pruned > 0 or (is_new and read("<?")[0])
    if is_quantised:
        raise UsageError(f"{path} is a quantised model of fastText; write the model's .bin or .vec file")
    n_rows, width = read("<2q")
    if (
        n_rows != n_words + buckets
        or width != dimensions
        or not 0 < n_words <= n_entries
        or min(buckets, width - 1) < 0
    ):
        raise UsageError(f"{path}: the file of fastText is damaged; download or copy it again")
    table = np.frombuffer(take(4 * n_rows * width), dtype="<f4").reshape(n_rows, width)
    for place, entry in enumerate(entries[:n_words]):
        word = entry.decode(errors="backslashreplace")
        whole = not max_n or not buckets or (is_new and word == _END_OF_SENTENCE)
        hashes = [] if whole else ngram_hashes(word, min_n, max_n)
        yield entry, table[[place, *(n_words + hashed % buckets for hashed in hashes)]].mean(axis=0)


def _fields(line: bytes) -> list[bytes]:
    """Split a line at spaces and tabs."""
    return [field for field in line.strip(b" \t\r\n").replace(b"\t", b" ").split(b" ") if field]


def _number(field: bytes) -> float | None:
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def _shown(field: bytes) -> str:
    """Return at most 40 characters of a field as a message shows them."""
    return repr(field.decode(errors="backslashreplace")[:40])


def _repeated(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0]
