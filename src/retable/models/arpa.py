"""N-gram models as ARPA files, the text format of KenLM, SRILM and other n-gram toolkits.

A line contains three fields: the log10 probability of an n-gram's last word given the earlier words, the n-gram, and
the log10 of the n-gram's back-off weight. N-grams of the highest order have no back-off weight. For an interpolated
model, the file contains the interpolated probabilities, so that a program that backs off computes the same values.
"""

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np

from retable.core.compressed import open_compressed
from retable.core.errors import UsageError
from retable.models.ngram import BackoffModel, NGrams

LOG_10 = np.log(10)
ROUNDING = 1e-4  # highest accepted log10 probability; above 0 because some toolkits round to few digits
CHUNK = 1 << 11  # lines read at a time; with 1 << 16 lines, garbage collection takes a third of the run time


def write_arpa(model: BackoffModel, words: Sequence[str], path: str | Path) -> None:
    """Write a model as an ARPA file in UTF-8, in KenLM's layout. Writing takes about 0.5 µs per n-gram.

    Args:
        words: the spelling of every id, in the order of the ids. The sentence boundary is written as `</s>`, whatever
            `words` contains for its id. Programs that read the file map unknown words to `<unk>`. The file contains
            `<unk>` only if `words` does.
    Raises: UsageError: a word is empty, has white space, or occurs twice; `words` does not have one word per id.
    """
    spelling = np.array([*words, "<s>"], object)
    if len(spelling) != model.radix:
        raise UsageError(f"got {len(words)} words for a model with {model.vocab_size} ids; give one word per id")
    spelling[model.boundary] = "</s>"
    if len(set(spelling)) != len(spelling):
        raise UsageError("a word occurs twice, or is <s> or </s>, which `write_arpa` adds; rename the word")
    for word in spelling:
        if word.encode().split() != [word.encode()]:
            raise UsageError(f"the word {word!r} is empty or has white space, which ARPA files do not allow; rename it")
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
    """Return the words of n-grams, given their table indices `nodes`: an array for each word of an n-gram, in order."""
    words = []
    for table in reversed(model.tables[:n]):
        nodes, last = np.divmod(table.keys[nodes], model.radix)
        words.append(last)
    return words[::-1]


class ArpaModel:
    """An n-gram model from an ARPA file: `model` is over ids, and `words` lists their spellings, including `</s>`."""

    def __init__(self, model: BackoffModel, words: Sequence[str]):
        self.model = model
        self.words = words
        self._ids = {word: index for index, word in enumerate(words)}
        self._unknown = self._ids.get("<unk>", self._ids.get("<UNK>"))

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Encode a stream of words as ids, int64 (length,). Unknown words get the id of `<unk>`.

        Raises: UsageError: a word is unknown and the model has no `<unk>`.
        """
        ids = [self._ids.get(word, self._unknown) for word in words]
        if None in ids:
            raise UsageError("some words are outside the ARPA model's vocabulary, and it has no <unk>; replace them")
        return np.array(ids, np.int64)

    def log_prob(self, words: Iterable[str]) -> np.ndarray:
        """Compute the log-probability of each word, float64 (length,), in nats. Each sentence must end with `</s>`."""
        return self.model.log_prob(self.encode(words))


def read_arpa(path: str | Path) -> ArpaModel:
    """Read an ARPA file from any toolkit, also one that is compressed. Reading takes about 1.5 µs per n-gram.

    The file may omit `<s>`, `<unk>`, back-off weights (a missing weight is 1), and n-grams that are only the beginning
    of longer n-grams.

    Raises: UsageError: the file is missing, unreadable, or malformed.
    """
    try:
        with open_compressed(path, "give an ARPA file") as (file, _):
            return _read(file)
    except ValueError as error:
        raise UsageError(f"{path} is not a valid ARPA file: {error}") from error


def _read(file: BinaryIO) -> ArpaModel:
    sizes = _header(file)
    lines = list(chain.from_iterable(_lines(file, 1, sizes[0])))
    spelling = [line[1] for line in lines if line[1] != b"<s>"]
    ids = {word: index for index, word in enumerate([*spelling, b"<s>"])}  # the id of <s> is vocab_size
    if len(ids) != len(spelling) + 1 or b"</s>" not in ids:
        raise ValueError("the 1-grams lack </s> or contain a word twice")
    sections = [_parse([lines], 1, ids)]
    sections += [_parse(_lines(file, n, size), n, ids) for n, size in enumerate(sizes[1:], start=2)]
    _expect(file, b"\\end\\")

    model = BackoffModel(len(spelling), len(sizes), boundary=ids[b"</s>"])
    # Table n has a node for each n-gram of order n, and for the first n words of each longer n-gram.
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
            raise ValueError(f"the {n}-grams contain an n-gram twice, or a probability that is not a number")
        model.tables[n - 1] = table if n < model.order else table._replace(backoff=table.backoff[:0])
    return ArpaModel(model, [word.decode() for word in spelling])


def _header(file: BinaryIO) -> list[int]:
    """Read the header, and return the number of n-grams of each order."""
    sizes: list[int] = []
    for line in file:
        entry = re.fullmatch(rb"ngram\s+(\d+)\s*=\s*(\d+)", line.removeprefix(codecs.BOM_UTF8).strip())
        if entry and int(entry[1]) == len(sizes) + 1:
            sizes.append(int(entry[2]))
        elif sizes and not line.strip():
            return sizes
        elif sizes:
            break
    raise ValueError("the file does not begin with \\data\\ and the numbers of 1-grams, 2-grams and so on")


def _expect(file: BinaryIO, title: bytes) -> None:
    """Read the next non-empty line, and raise ValueError if it is not `title`."""
    line = next((line.strip() for line in file if line.strip()), b"the end of the file")
    if line != title:
        raise ValueError(f"expected {title.decode()} but got {line[:60].decode(errors='replace')}")


def _lines(file: BinaryIO, n: int, size: int) -> Iterator[list[list[bytes]]]:
    """Yield the fields of a section's lines in chunks: n + 2 fields per line, or n + 1 without a back-off weight."""
    _expect(file, b"\\%d-grams:" % n)
    for begin in range(0, size, CHUNK):
        # `bytes.split` splits only at ASCII white space. `str.split` would also split a word at a no-break space.
        lines = [line.split() for line in islice(file, min(CHUNK, size - begin))]
        if len(lines) < min(CHUNK, size - begin) or not {n + 1, n + 2}.issuperset(map(len, lines)):
            raise ValueError(f"some of the {size} lines after \\{n}-grams: are not a {n}-gram with one or two numbers")
        yield lines


def _parse(
    chunks: Iterable[list[list[bytes]]], n: int, ids: Mapping[bytes, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return word ids, int64 (n, size), log-probabilities and log back-off weights, float64 (size,) each, in nats."""
    words, log_prob, backoff = [np.empty((n, 0), np.int64)], [np.empty(0)], [np.empty(0)]
    for lines in chunks:
        first, *columns = zip_longest(*lines, fillvalue=b"0")
        weights = columns[n] if len(columns) > n else [0] * len(lines)
        try:
            words.append(np.array([list(map(ids.__getitem__, column)) for column in columns[:n]]))
        except KeyError as error:
            raise ValueError(f"{error} is a word in the {n}-grams but not in the 1-grams") from error
        log_prob.append(np.array(list(map(float, first))))
        if (log_prob[-1] > ROUNDING).any():
            raise ValueError(f"one of the {n}-grams has a probability above 1")
        backoff.append(np.array(list(map(float, weights))))
    return np.concatenate(words, axis=1), np.concatenate(log_prob) * LOG_10, np.concatenate(backoff) * LOG_10
