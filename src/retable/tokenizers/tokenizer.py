"""One interface over Hugging Face tokenizers: text to token ids and back, and units of text to streams of ids."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.core.errors import UsageError

END_OF_LINE = "<eos>"
END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"
LONGEST = 1000
LEARN_FROM = 100_000_000  # characters of a text that pieces are learnt from; a trainer takes 1 kB for each word's type
_LONG = re.compile(rf"\S{{{LONGEST + 1}}}|\s{{{LONGEST + 1}}}")


class Ends(NamedTuple):
    """How a tokenizer marks ends in a stream."""

    boundary: str  # the token before the first of a stream
    line: str  # the text that stands for a line's end
    document: str  # the text that stands for the blank line after a document


# The first whose token a tokenizer has. A word tokenizer reads "\n" as <eos> and a blank line as a lone one; WordPiece
# and SentencePiece drop line ends, so that a mark of theirs has to stand for them.
ENDS = (
    Ends(END_OF_TEXT, "\n", END_OF_TEXT),
    Ends(END_OF_LINE, "\n", "\n"),
    Ends("[SEP]", "[SEP]", "[SEP]"),
    Ends("</s>", "</s>", "</s>"),
)


class Token(NamedTuple):
    id: int
    start: int  # in bytes of the UTF-8 text
    end: int


class Tokenizer:
    """A trained tokenizer, or any `tokenizer.json` of the Hugging Face format."""

    def __init__(self, tokenizer: HuggingFaceTokenizer):
        self._tokenizer = tokenizer
        self.vocab_size: int = tokenizer.get_vocab_size()

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Raises UsageError where the file can't be read."""
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

    @cached_property
    def words(self) -> list[str]:
        """Every token's text, in the order of the ids."""
        vocabulary = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """The ids of the tokens that are marks, not text, by their names."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return {token.content: i for i, token in sorted(added) if token.special}

    @property
    def boundary(self) -> int:
        """The id that stands before the first token of a stream. UsageError where there is none."""
        return int(self._tokenizer.token_to_id(self._ends.boundary))

    @cached_property
    def _ends(self) -> Ends:
        for ends in ENDS:
            if self._tokenizer.token_to_id(ends.boundary) is not None:
                return ends
        names = ", ".join(ends.boundary for ends in ENDS)
        raise UsageError(f"the tokenizer has none of {names} to begin a stream with")

    def encode(self, text: str) -> list[int]:
        """The ids of `text` alone, without the marks that a model's template would put round it.

        Raises UsageError for a lone surrogate, which is half a character and has no UTF-8.
        """
        return self._encode_batch([text])[0].ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for each of `texts`, on all cores."""
        return [encoding.ids for encoding in self._encode_batch(texts)]

    def encode_with_offsets(self, text: str) -> list[Token]:
        """The tokens of `text` with the bytes of its UTF-8 that each was made from."""
        _require_characters([text])
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        byte = [0, *accumulate(len(character.encode()) for character in text)]
        return [Token(i, byte[a], byte[b]) for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True)]

    def decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        return self._tokenizer.decode_batch([list(ids) for ids in batch], skip_special_tokens=False)

    def encode_units(self, units: Iterable[list[str]], documents: bool) -> Iterator[tuple[list[int], int, int]]:
        """For each unit, a list of lines: its ids, its words (each line end counts as one), its bytes.

        With `documents`, the blank line that ends each unit is part of it.
        """
        end = self._ends.document if documents else ""
        units = iter(units)
        while batch := list(islice(units, 1024)):
            encodings = self._encode_batch(["".join(line + self._ends.line for line in lines) + end for lines in batch])
            for lines, encoding in zip(batch, encodings, strict=True):
                words = sum(len(line.split()) + 1 for line in lines) + documents
                size = sum(len(line.encode()) + 1 for line in lines) + documents
                yield encoding.ids, words, size

    def _encode_batch(self, texts: Sequence[str]) -> list[Any]:
        _require_characters(texts)
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def _require_characters(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"character {error.start + 1} of the text is the lone surrogate U+{ord(text[error.start]):04X}, which is "
                "no character; read the text as UTF-8"
            ) from None


def to_learn_from(lines: Iterable[str], characters: int) -> Iterator[str]:
    """The lines for a trainer to learn pieces from, which it holds in memory by their words.

    Of a text of more than so many characters it is lines of about so many, by chance from a fixed seed. A line with a
    word, or a gap, of more than LONGEST characters comes in parts of so many: the time that a trainer takes grows with
    the square of a word's length, 10 s for 100,000. `lines` are gone over twice; an iterator's are held in memory.
    """
    if iter(lines) is lines:
        lines = list(lines)
    share, chance = characters / max(sum(map(len, lines)), 1), np.random.default_rng(0).random
    for line in lines:
        if share < 1 and chance() >= share:
            continue
        if len(line) > LONGEST and _LONG.search(line):
            yield from (line[start : start + LONGEST] for start in range(0, len(line), LONGEST))
        else:
            yield line


def read_tokens(path: Path, vocab_size: int) -> np.ndarray:
    """The token ids of a `.bin` file, memory-mapped. UsageError for a file of no ids, or of others."""
    try:
        tokens = np.memmap(path, dtype="<u2" if vocab_size <= 1 << 16 else "<u4", mode="r")
    except ValueError:  # it is empty, or ends within an id
        raise UsageError(f"{path} does not hold whole ids; run the tokenize stage again") from None
    if len(tokens) and int(tokens[: 1 << 20].max()) >= vocab_size:
        raise UsageError(f"{path} holds ids beyond the vocabulary of {vocab_size}; run the tokenize stage again")
    return tokens
