"""Read token shards as one sequence without copying them, and import published token files as a corpus.

A shard contains ids without a header, as the `tokenize` stage writes them, or 16-bit ids after llm.c's header. The
header has 256 int32 values; the first three are a magic number, the version and the number of tokens. FineWeb's tokens
are published with this header (kjj0/fineweb10B-gpt2 on the Hugging Face hub).
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from retable.core.errors import UsageError, reading, require_file
from retable.core.settings import PositiveInt
from retable.corpora.text import SPLITS
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

MAGIC, VERSION, HEADER = 20240520, 1, 256 * 4  # magic number, version and header size in bytes of llm.c's token files
SCAN = 1 << 20  # number of tokens that are searched for document ends at a time


class Shards:
    """Several arrays of ids as one sequence, without a copy; it has the np.ndarray operations that batches need.

    A slice is again a `Shards` object; slicing reads no ids. Indexing with an array, `astype`, np.asarray and
    comparisons read the ids immediately.
    """

    def __init__(self, parts: Sequence[np.ndarray], places: range | None = None):
        self._parts, self._starts = parts, np.cumsum([0, *map(len, parts)])
        self._places = range(int(self._starts[-1])) if places is None else places
        self.dtype = np.result_type(*parts)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Shards(self._parts, self._places[key])
        places = np.asarray(key)
        if (outside := (places < -len(self)) | (places >= len(self))).any():
            raise IndexError(f"position {places[outside].flat[0]} is outside a stream of {len(self)} tokens")
        return self._read(self._places.start + self._places.step * (places % len(self)))

    def _read(self, places: np.ndarray) -> np.ndarray:
        shard = np.searchsorted(self._starts, places, side="right") - 1
        ids = np.empty(places.shape, self.dtype)
        for i in np.unique(shard):
            in_shard = shard == i
            ids[in_shard] = self._parts[i][places[in_shard] - self._starts[i]]
        return ids

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self._places:
            return np.empty(0, dtype or self.dtype)
        low, high = sorted((self._places[0], self._places[-1]))
        spans = [(max(low - start, 0), max(high + 1 - start, 0)) for start in self._starts[:-1].tolist()]
        joined = np.concatenate([part[a:b] for part, (a, b) in zip(self._parts, spans, strict=True)])
        return joined[:: self._places.step].astype(dtype or self.dtype, copy=False)

    def astype(self, dtype: Any) -> np.ndarray:
        return self.__array__(dtype)

    def __eq__(self, other: object) -> np.ndarray:  # type: ignore[override]
        return np.asarray(self) == other

    def reshape(self, n_rows: int, width: int) -> "Rows":
        """Return a view of the tokens as a matrix, (n_rows, width), without reading the tokens."""
        if n_rows * width != len(self):
            raise ValueError(f"cannot reshape {len(self)} tokens to {n_rows} rows of {width}")
        return Rows(self, n_rows, width)


class Rows:
    """A view of a `Shards` as a matrix; the ids are read only when the matrix is indexed, as in `rows[a:b, c:d]`."""

    def __init__(self, tokens: Shards, n_rows: int, width: int):
        self._tokens, self.shape = tokens, (n_rows, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        rows, columns = key
        width = self.shape[1]
        return np.stack([np.asarray(self._tokens[row * width : (row + 1) * width][columns])
                         for row in range(len(self))[rows]])  # fmt: skip


def stream_files(folder: Path, split: str) -> list[Path]:
    """Return the token file `<split>.bin`; if it does not exist, return the sorted shards `<split>-*.bin`."""
    whole = folder / f"{split}.bin"
    return [whole] if whole.exists() else sorted(folder.glob(f"{split}-*.bin")) or [whole]


def read_stream(files: Sequence[Path], vocab_size: int) -> Any:
    """Memory-map token files as one sequence of ids.

    Raises: UsageError: a file is truncated or contains an id of `vocab_size` or more.
    """
    parts = [read_shard(path, vocab_size) for path in files]
    return parts[0] if len(parts) == 1 else Shards(parts)


def read_shard(path: Path, vocab_size: int) -> np.ndarray:
    """Memory-map a token file, with or without llm.c's header.

    Raises: UsageError: the file is truncated or contains an id of `vocab_size` or more.
    """
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(f"{path} does not exist or is empty; run the tokenize stage, or download the file again")
    header = np.fromfile(path, "<i4", 3)
    if len(header) < 3 or header[0] != MAGIC:
        return read_tokens(path, vocab_size)
    version, length = map(int, header[1:])
    if version != VERSION:
        raise UsageError(
            f"{path} has version {version} of llm.c's format, but only {VERSION} is supported; convert the file"
        )
    if path.stat().st_size != HEADER + 2 * length:
        raise UsageError(f"{path} is truncated: its header counts {length} tokens; download it again")
    tokens = np.memmap(path, "<u2", "r", offset=HEADER)
    if int(tokens[: 1 << 20].max()) >= vocab_size:
        raise UsageError(f"{path} has ids beyond the vocabulary of {vocab_size}; use the tokenizer that made the file")
    return tokens


def write_tokenized(
    folder: Path,
    source: str,
    train: str,
    held_out: str,
    tokenizer: str,
    train_tokens: PositiveInt,
    held_out_tokens: PositiveInt,
) -> dict[str, float]:
    """Write a corpus from published token files: text, tokens, tables of units and tokenizer.

    The text `<split>.txt` can be encoded with any tokenizer. The files `<split>.bin`, `<split>.units.npy` and
    `tokenizer.json` are read with tokenizer=given, which keeps the published tokens. Blank lines within documents are
    removed from the text. The line ends of a document, and its end mark if it has one, count as words and as bytes.

    Args:
        source: folder of the token files. In these files, the tokenizer's end mark (for GPT-2: <|endoftext|>) separates
            documents.
        train: file pattern of the training tokens, such as train_*.bin; the first `train_tokens` tokens are used.
        held_out: file pattern of held-out tokens; the first `held_out_tokens` tokens are the validation split, and the
            next `held_out_tokens` tokens are the test split.
        tokenizer: the tokenizer.json that the tokens were encoded with.

    Returns: the number of tokens, words and documents of each split.
    Raises: UsageError: files are missing, damaged, or have too few tokens.
    """
    require_file(tokenizer, f"copy the tokenizer.json that made the tokens of {source} there")
    made_by = Tokenizer.load(Path(tokenizer))
    made_by.save(folder / "tokenizer.json")
    spans = dict(zip(SPLITS, [(train, 0, train_tokens), (held_out, 0, held_out_tokens),
                              (held_out, held_out_tokens, 2 * held_out_tokens)], strict=True))  # fmt: skip
    counts: dict[str, float] = {}
    for split, (pattern, start, stop) in spans.items():
        if not pattern or Path(pattern).is_absolute():
            raise UsageError(f"{pattern!r} is not a file pattern relative to {source}; write, for example, train_*.bin")
        if not (files := sorted(Path(source).glob(pattern))):
            raise UsageError(f"{source} has no file {pattern}; run `retable fetch fineweb`, or set RETABLE_DATA")
        stream = Shards([read_shard(path, made_by.vocab_size) for path in files])
        if len(stream) < stop:
            raise UsageError(f"{pattern} in {source} has {len(stream)} tokens, but {split} needs {stop}; add shards")
        with reading(", ".join(map(str, files))):
            written = _write_split(folder / split, stream[start:stop], made_by)
        counts |= {f"{split}/{name}": n for name, n in written.items()}
    return counts


def _write_split(path: Path, stream: Shards, tokenizer: Tokenizer) -> dict[str, float]:
    rows: list[tuple[int, ...]] = []
    documents = _documents(stream, tokenizer.boundary)
    with path.with_suffix(".bin").open("wb") as ids, path.with_suffix(".txt").open("w", encoding="utf-8") as file:
        while batch := list(islice(documents, 1024)):
            marked = [bool(document[-1] == tokenizer.boundary) for document in batch]
            texts = tokenizer.decode_batch(
                document[: len(document) - mark].tolist() for document, mark in zip(batch, marked, strict=True)
            )
            if any(int(document.max()) >= tokenizer.vocab_size for document in batch):
                raise UsageError(
                    f"token ids exceed the vocabulary of {tokenizer.vocab_size}; use the tokenizer that made the ids"
                )
            for document, mark, text in zip(batch, marked, texts, strict=True):
                ids.write(document.astype(tokenizer.dtype).tobytes())
                words, size = len(text.split()) + text.count("\n") + mark, len(text.encode()) + mark
                # The text is decoded from the tokens, so the columns `lost` (bytes) and `marks` (<unk>) are 0.
                rows.append((len(document), words, size, 0, 0))
                if lines := [line for line in text.split("\n") if line.strip()]:
                    file.write("\n".join(lines) + "\n\n")
    if not path.with_suffix(".txt").stat().st_size:
        raise UsageError(f"the tokens of {path.name} decode to an empty text")
    table = np.array(rows, dtype="<i8")
    np.save(path.with_suffix(".units.npy"), table)
    return {"tokens": int(table[:, 0].sum()), "words": int(table[:, 1].sum()), "documents": len(rows)}


def _documents(stream: Shards, mark: int) -> Iterator[np.ndarray]:
    """Yield the documents of a token stream, each with its end mark.

    The last document has no end mark if the stream does not end with an end mark.
    """
    begun = np.empty(0, stream.dtype)
    for start in range(0, len(stream), SCAN):
        chunk = np.concatenate([begun, np.asarray(stream[start : start + SCAN])])
        *whole, begun = np.split(chunk, np.flatnonzero(chunk == mark) + 1)
        yield from whole
    if len(begun):
        yield begun
