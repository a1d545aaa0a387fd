r"""N-gram models as ARPA files, the text format that KenLM, SRILM and the other n-gram toolkits share.

A line has log10 of the probability of an n-gram's last word after the others, the n-gram, and, below the
highest order, log10 of its back-off weight as a context. An interpolated model is written with interpolated
probabilities, so that backing off gives what interpolating gave.
"""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from retable.core.errors import UsageError, require_file
from retable.models.ngram import BackoffModel, NGrams

LOG_10 = np.log(10)
ROUNDING = 1e-4  # that log10 of a probability may be above 0, of which some toolkits write few digits
CHUNK = 1 << 11  # lines at a time; with 1 << 16 a third of the time to read goes to garbage collection


def write_arpa(model: BackoffModel, words: Sequence[str], path: str | Path) -> None:
    """Writes a model as an ARPA file, laid out as KenLM does, in UTF-8. Takes about 0.5 µs an n-gram.

    `words` spells every id; that of the model's boundary is written `</s>`, however it is spelt. Readers take
    words that are not in the file for `<unk>`, which is there only if it is one of `words`. Raises UsageError
    for words that such a file cannot hold.
    """
    spelling = np.array([*words, "<s>"], object)
    if len(spelling) != model.radix:
        raise UsageError(f"{len(words)} words came with a model of {model.vocab_size}; give the word of every id")
    spelling[model.boundary] = "</s>"
    if len(set(spelling)) != len(spelling):
        raise UsageError("a word stands twice among those for an ARPA file, which has its own <s> and </s>; rename it")
    for word in spelling:
        if word.encode().split() != [word.encode()]:
            raise UsageError(f"the word {word!r} is empty or has white space, which no ARPA file can hold; rename it")
    listed = [np.flatnonzero(~np.isnan(table.log_prob)) for table in model.tables]
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {n}={len(nodes)}\n" for n, nodes in enumerate(listed, start=1))
        for n, nodes in enumerate(listed, start=1):
            file.write(f"\n\\{n}-grams:\n")
            file.writelines(_format(model, n, nodes, spelling))
        file.write("\n\\end\\\n")


def _format(model: BackoffModel, n: int, nodes: np.ndarray, spelling: np.ndarray) -> Iterator[str]:
    table = model.tables[n - 1]
    line = "%.8g\t" + " ".join(["%s"] * n) + ("\t%.8g\n" if n < model.order else "\n")
    for begin in range(0, len(nodes), CHUNK):
        chunk = nodes[begin : begin + CHUNK]
        columns = [table.log_prob[chunk] / LOG_10, *(spelling[words] for words in _unroll(model, n, chunk))]
        if n < model.order:
            columns.append(table.backoff[chunk] / LOG_10)
        fields = chain.from_iterable(zip(*(column.tolist() for column in columns), strict=True))
        yield (line * len(chunk)) % tuple(fields)


def _unroll(model: BackoffModel, n: int, nodes: np.ndarray) -> list[np.ndarray]:
    """The ids of the first words of these n-grams, of their second words, and so on."""
    words = []
    for table in reversed(model.tables[:n]):
        nodes, last = np.divmod(table.keys[nodes], model.radix)
        words.append(last)
    return words[::-1]


class ArpaModel:
    """An ARPA file's n-gram model: `model`, over ids, and `words`, how ids are spelt, `</s>` among them."""

    def __init__(self, model: BackoffModel, words: Sequence[str]):
        self.model = model
        self.words = words
        self._ids = {word: index for index, word in enumerate(words)}
        self._unknown = self._ids.get("<unk>", self._ids.get("<UNK>"))

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Ids, int64 (length,), of a stream of words; that of `<unk>` for a word outside the vocabulary.

        Raises UsageError for such a word where the model has no `<unk>`.
        """
        ids = [self._ids.get(word, self._unknown) for word in words]
        if None in ids:
            raise UsageError("some words are outside the ARPA model's vocabulary, and it has no <unk>; replace them")
        return np.array(ids, np.int64)

    def log_prob(self, words: Iterable[str]) -> np.ndarray:
        """Log-probability in nats, float64 (length,), of each word of sentences that `</s>` ends."""
        return self.model.log_prob(self.encode(words))


def read_arpa(path: str | Path) -> ArpaModel:
    """Reads an ARPA file, of any toolkit. Takes about 1.5 µs an n-gram.

    It may leave out back-off weights (they are 1 then), n-grams that longer ones begin with, `<s>`, `<unk>`.
    Raises UsageError for a file that is missing, or not as an ARPA file should be.
    """
    require_file(path, "give an ARPA file")
    try:
        with open(path, "rb") as file:
            return _read(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; give an ARPA file") from error
    except ValueError as error:
        raise UsageError(f"{path} is no sound ARPA file: {error}") from error


def _read(file: BinaryIO) -> ArpaModel:
    sizes = _header(file)
    lines = list(chain.from_iterable(_lines(file, 1, sizes[0])))
    spelling = [line[1] for line in lines if line[1] != b"<s>"]
    ids = {word: index for index, word in enumerate([*spelling, b"<s>"])}  # <s> is vocab_size
    if len(ids) != len(spelling) + 1 or b"</s>" not in ids:
        raise ValueError("its 1-grams lack </s> or hold a word twice")
    sections = [_parse([lines], 1, ids)]
    sections += [_parse(_lines(file, n, size), n, ids) for n, size in enumerate(sizes[1:], start=2)]
    _expect(file, b"\\end\\")

    model = BackoffModel(len(spelling), len(sizes), boundary=ids[b"</s>"])
    # Level by level: the n-grams of order n and the first n words of longer ones are the nodes of table n.
    nodes = [words[0] for words, _, _ in sections]
    keys = np.arange(model.radix)
    for n, (_, log_prob, backoff) in enumerate(sections, start=1):
        if n > 1:
            paths = [nodes[m] * model.radix + sections[m][0][n - 1] for m in range(n - 1, len(sections))]
            keys, inverse = np.unique(np.concatenate(paths), return_inverse=True)
            nodes[n - 1 :] = np.split(inverse, np.cumsum([len(path) for path in paths[:-1]]))
        own = nodes[n - 1]
        table = NGrams(keys, np.full(len(keys), np.nan, np.float32), np.zeros(len(keys), np.float32))
        table.log_prob[own] = log_prob
        table.backoff[own] = backoff
        if np.count_nonzero(~np.isnan(table.log_prob)) < len(own):
            raise ValueError(f"its {n}-grams hold one twice, or a probability that is no number")
        model.tables[n - 1] = table if n < model.order else table._replace(backoff=table.backoff[:0])
    return ArpaModel(model, [word.decode() for word in spelling])


def _header(file: BinaryIO) -> list[int]:
    """The number of n-grams of each order. Leaves the file after its last line."""
    sizes: list[int] = []
    for line in file:
        entry = re.fullmatch(rb"ngram\s+(\d+)\s*=\s*(\d+)", line.removeprefix(codecs.BOM_UTF8).strip())
        if entry and int(entry[1]) == len(sizes) + 1:
            sizes.append(int(entry[2]))
        elif sizes and not line.strip():
            return sizes
        elif sizes:
            break
    raise ValueError("it does not begin with \\data\\ and the numbers of its 1-grams, 2-grams and so on")


def _expect(file: BinaryIO, title: bytes) -> None:
    """Goes past the next line with something on it, which must be this."""
    line = next((line.strip() for line in file if line.strip()), b"the end of the file")
    if line != title:
        raise ValueError(f"{line[:60].decode(errors='replace')} stands where {title.decode()} should")


def _lines(file: BinaryIO, n: int, size: int) -> Iterator[list[list[bytes]]]:
    """The fields of a section's lines, in chunks: n + 2 a line, or n + 1 where it has no weight."""
    _expect(file, b"\\%d-grams:" % n)
    for begin in range(0, size, CHUNK):
        # as bytes, which split at ASCII white space only: text would split at a no-break space within a word
        lines = [line.split() for line in islice(file, min(CHUNK, size - begin))]
        if len(lines) < min(CHUNK, size - begin) or not {n + 1, n + 2}.issuperset(map(len, lines)):
            raise ValueError(f"not all of the {size} lines after \\{n}-grams: are {n}-grams with their numbers")
        yield lines


def _parse(
    chunks: Iterable[list[list[bytes]]], n: int, ids: Mapping[bytes, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, int64 (n, size), and in nats, float64 (size,), log-probabilities and log back-off weights."""
    words, log_prob, backoff = [np.empty((n, 0), np.int64)], [np.empty(0)], [np.empty(0)]
    for lines in chunks:
        first, *columns = zip_longest(*lines, fillvalue=b"0")
        weights = columns[n] if len(columns) > n else [0] * len(lines)
        try:
            words.append(np.array([list(map(ids.__getitem__, column)) for column in columns[:n]]))
        except KeyError as error:
            raise ValueError(f"{error} is in one of its {n}-grams but not in its 1-grams") from error
        log_prob.append(np.array(list(map(float, first))))
        if (log_prob[-1] > ROUNDING).any():
            raise ValueError(f"a probability of its {n}-grams is above one")
        backoff.append(np.array(list(map(float, weights))))
    return np.concatenate(words, axis=1), np.concatenate(log_prob) * LOG_10, np.concatenate(backoff) * LOG_10
