"""One interface over Hugging Face tokenizers: units of text to token ids and back."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.errors import UsageError

END_OF_LINE = "<eos>"
END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"


class Tokenizer:
    """A trained tokenizer. `boundary` is the id that stands before the first token of a stream."""

    def __init__(self, tokenizer: HuggingFaceTokenizer):
        self._tokenizer = tokenizer
        self.vocab_size: int = tokenizer.get_vocab_size()
        # A word tokenizer reads the blank line after a document as a lone <eos>; the others have a token for it.
        ids = {mark: tokenizer.token_to_id(mark) for mark in (END_OF_TEXT, END_OF_LINE)}
        marks = {mark: i for mark, i in ids.items() if i is not None}
        if not marks:
            raise UsageError(f"the tokenizer has neither {END_OF_TEXT} nor {END_OF_LINE} to begin a stream with")
        self.boundary: int = next(iter(marks.values()))
        self._document_end = END_OF_TEXT if END_OF_TEXT in marks else "\n"

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        try:
            return cls(HuggingFaceTokenizer.from_file(str(path)))
        except Exception as error:  # the library raises bare Exception for whatever is wrong with the file
            raise UsageError(f"{path} is not a readable tokenizer.json: {error}") from None

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))

    @property
    def digest(self) -> str:
        """The sha256 of `tokenizer.json`."""
        return hashlib.sha256(self._tokenizer.to_str(pretty=True).encode()).hexdigest()

    @property
    def dtype(self) -> np.dtype:
        """The type that token files hold: little-endian, as narrow as the vocabulary allows."""
        return np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")

    @property
    def words(self) -> list[str]:
        """Every token's text, in the order of the ids."""
        vocabulary = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def encode_units(self, units: Iterable[list[str]], documents: bool) -> Iterator[tuple[list[int], int, int]]:
        """For each unit, a list of lines: its ids, its words (each line end counts as one), its bytes.

        With `documents`, the blank line that ends each unit is part of it.
        """
        end = self._document_end if documents else ""
        units = iter(units)
        while batch := list(islice(units, 1024)):
            texts = ["".join(line + "\n" for line in lines) for lines in batch]
            encodings = self._tokenizer.encode_batch_fast([t + end for t in texts], add_special_tokens=False)
            for lines, text, encoding in zip(batch, texts, encodings, strict=True):
                words = sum(len(line.split()) + 1 for line in lines) + documents
                yield encoding.ids, words, len(text.encode()) + documents


def read_tokens(path: Path, vocab_size: int) -> np.ndarray:
    """The token ids of a `.bin` file, memory-mapped."""
    tokens = np.memmap(path, dtype="<u2" if vocab_size <= 1 << 16 else "<u4", mode="r")
    if len(tokens) and int(tokens[: 1 << 20].max()) >= vocab_size:
        raise UsageError(f"{path} holds ids beyond the vocabulary of {vocab_size}; tokenize the corpus again")
    return tokens
