"""A common interface to Hugging Face tokenizers: encode and decode text, and encode units of text to token streams."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from retable.core.errors import TextError, UsageError

END_OF_LINE = "<eos>"
END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"
SOURCE = ".source.json"  # suffix of the file with the tokenizer of the sources, see `Tokenizer`
LONGEST = 1000  # maximum number of characters of a word or a run of white space in training text, see `to_learn_from`
LEARN_FROM = 100_000_000  # number of characters to learn pieces from; a trainer needs 1 kB of memory per different word
_LONG = re.compile(rf"\S{{{LONGEST + 1}}}|\s{{{LONGEST + 1}}}")
_SPACES = re.compile(r"\s+")
WORDS = 1 << 16  # maximum number of words whose `Lost` is cached


class Ends(NamedTuple):
    """The marks with which a tokenizer ends lines and documents in a stream."""

    boundary: str  # the token before the first token of a stream
    line: str  # text that ends a line; if "", the boundary token ends a line
    document: str  # text of the blank line after a document; if "", the boundary token is used


# A tokenizer uses the first entry of ENDS whose boundary token is in the tokenizer's vocabulary. A word tokenizer
# encodes "\n" as <eos>, and a blank line as a single <eos>. WordPiece and SentencePiece drop line ends, so [SEP] or
# </s> is used as the line end. A closed character tokenizer has no special tokens, so the line end is the boundary
# token.
ENDS = (
    Ends(END_OF_TEXT, "\n", ""),
    Ends(END_OF_LINE, "\n", "\n"),
    Ends("[SEP]", "", ""),
    Ends("</s>", "", ""),
    Ends("\n", "\n", "\n"),
)
SENTENCE = ("<s>", "</s>")  # sentence marks that n-gram models add, and that some texts contain


class Token(NamedTuple):
    """A token with its place in the text."""

    id: int
    start: int  # offset in the UTF-8 text, in bytes
    end: int


class Lost(NamedTuple):
    """The amount of text that is lost when a text is encoded and decoded again."""

    bytes: int  # number of bytes that decoding does not restore
    marks: int  # number of unknown tokens that represent a literal <unk> in the text


class Tokenizer:
    """A trained tokenizer, or any `tokenizer.json` of the Hugging Face format.

    A special token's name in a text is encoded as ordinary text. If the model cannot encode the name as ordinary text,
    an error is raised. For example, a word tokenizer raises an error for texts that contain `<eos>`.

    For translation with separate vocabularies, `source` is the tokenizer of the sources, and the other attributes and
    methods belong to the targets. Without separate vocabularies, `source` is this tokenizer. The tokenizer of the
    sources is saved next to the tokenizer of the targets, as `tokenizer.source.json`.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, source: "Tokenizer | None" = None):
        self._tokenizer, self._source = tokenizer, source
        tokenizer.encode_special_tokens = True  # encodes special tokens' names as text; not saved in the file
        self.vocab_size: int = tokenizer.get_vocab_size()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._tokenizer, self._source)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Load a `tokenizer.json`.

        Raises: UsageError: the file is missing or damaged.
        """
        source = cls.load(of_sources) if (of_sources := path.with_suffix(SOURCE)).exists() else None
        try:
            return cls(HuggingFaceTokenizer.from_file(str(path)), source)
        except Exception as error:  # the library raises bare Exception for every fault
            raise UsageError(f"{path} is not a readable tokenizer.json: {error}") from None

    def save(self, path: Path) -> None:
        self._tokenizer.save(str(path))
        if self._source is not None:
            self._source.save(path.with_suffix(SOURCE))

    def with_source(self, source: "Tokenizer") -> "Tokenizer":
        """Return this tokenizer with `source` as the tokenizer of the sources."""
        return Tokenizer(self._tokenizer, source)

    @property
    def source(self) -> "Tokenizer":
        """Return the tokenizer of the sources, or this tokenizer if sources and targets share a vocabulary."""
        return self if self._source is None else self._source

    @property
    def source_vocab_size(self) -> int | None:
        """Return the size of the sources' vocabulary, or None if sources and targets share a vocabulary."""
        return None if self._source is None else self._source.vocab_size

    @property
    def digest(self) -> str:
        """Return the sha256 of `tokenizer.json`, followed by the digest of the sources' tokenizer if it is separate."""
        separate = "" if self._source is None else self._source.digest
        return hashlib.sha256((self._tokenizer.to_str(pretty=True) + separate).encode()).hexdigest()

    @property
    def dtype(self) -> np.dtype:
        """Return the data type of token files: little-endian, 16 bits if the vocabulary allows, otherwise 32 bits."""
        return np.dtype("<u2" if self.vocab_size <= 1 << 16 else "<u4")

    @cached_property
    def words(self) -> list[str]:
        """Return the strings of all tokens, in the order of their ids."""
        vocabulary = self._tokenizer.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    @cached_property
    def special_ids(self) -> dict[str, int]:
        """Return a mapping from the names of the special tokens (marks) to their ids."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return {token.content: i for i, token in sorted(added) if token.special}

    @cached_property
    def unknown(self) -> int | None:
        """Return the id of the unknown token, or None if the tokenizer has no unknown token."""
        model = self._tokenizer.model
        if isinstance(model, models.Unigram):
            return json.loads(self._tokenizer.to_str())["model"]["unk_id"]
        return None if model.unk_token is None else self._tokenizer.token_to_id(model.unk_token)

    @property
    def boundary(self) -> int:
        """Return the id of the boundary token, which is placed before the first token of a stream.

        Raises: UsageError: the tokenizer has no boundary token.
        """
        return int(self._tokenizer.token_to_id(self._ends.boundary))

    @cached_property
    def _ends(self) -> Ends:
        for ends in ENDS:
            if self._tokenizer.token_to_id(ends.boundary) is not None:
                return ends
        names = ", ".join(ends.boundary for ends in ENDS)
        raise UsageError(f"the tokenizer has no mark to begin a stream with; add one of {names} to the tokenizer")

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Encode a text, without the special tokens that a model's template would add.

        Args:
            special: whether the name of a special token in the text is encoded as the special token; if not, the name
                is encoded as ordinary text.

        Raises:
            UsageError: the text contains a lone surrogate (half of a character, which has no UTF-8 encoding).
            TextError: the text contains a special token's name that cannot be encoded as text.
        """
        return self._ids([text], special)[0]

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """Encode each of `texts` as `encode` does, on all cores.

        Args:
            special: whether the name of a special token in a text is encoded as the special token; if not, the name is
                encoded as ordinary text.

        Raises: UsageError, TextError: as in `encode`.
        """
        return self._ids(texts, special)

    def encode_with_offsets(self, text: str) -> list[Token]:
        """Encode a text, and return each token with its start and end in the text, as offsets in UTF-8 bytes."""
        _require_characters([text])
        encoding = self._reader.encode(text, add_special_tokens=False)
        self._require_text(text, encoding.ids)
        byte = [0, *accumulate(len(character.encode()) for character in text)]
        return [Token(i, byte[a], byte[b]) for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True)]

    def decode(self, ids: Iterable[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def decode_batch(self, batch: Iterable[Iterable[int]]) -> list[str]:
        return self._tokenizer.decode_batch([list(ids) for ids in batch], skip_special_tokens=False)

    def encode_units(self, units: Iterable[list[str]], documents: bool) -> Iterator[tuple[list[int], int, int]]:
        """Yield each unit's ids, number of words (a line end counts as a word), and number of bytes.

        A unit is a list of lines. With `documents`, the blank line at the end of the unit is also encoded and counted.

        Raises: UsageError, TextError: as in `encode`.
        """
        units = iter(units)
        while batch := list(islice(units, 1024)):
            for lines, ids in zip(batch, self._of_units(batch, documents), strict=True):
                words = sum(len(line.split()) + 1 for line in lines) + documents
                size = sum(len(line.encode()) + 1 for line in lines) + documents
                yield ids, words, size

    def _of_units(self, units: Sequence[list[str]], documents: bool) -> list[list[int]]:
        ends, mark = self._ends, [self.boundary]
        last = mark if documents and not ends.document else []
        if not ends.line:
            lines = iter(self._ids([line for unit in units for line in unit]))
            return [[*chain.from_iterable([*next(lines), *mark] for _ in unit), *last] for unit in units]
        end = ends.document if documents else ""
        return [
            [*ids, *last] for ids in self._ids(["".join(line + ends.line for line in unit) + end for unit in units])
        ]

    def lost(self, lines: Iterable[str]) -> Lost:
        """Count the bytes that decoding does not restore, because of unknown words, case or unusual white space."""
        size = marks = 0
        for line in lines:
            words = line.split()
            if not self._whole.issuperset(words):  # this test is three times as fast as a loop over the words
                of_words = [self._of_word(word) for word in words]
                size += sum(each.bytes for each in of_words)
                marks += sum(each.marks for each in of_words)
            if " ".join(words) != line and self.decode(self.encode(line)) != line:
                spaces = (match for match in _SPACES.finditer(line) if not _lone(match))
                size += sum(len(match[0].encode()) for match in spaces)
        return Lost(size, marks)

    @cached_property
    def _whole(self) -> set[str]:
        """Return the cache, a set, of words that decoding restores exactly."""
        return set()

    @cached_property
    def _of_word(self) -> Callable[[str], Lost]:
        """Return a cached function that computes the `Lost` of a word; a word loses all its bytes or none."""
        unknown, name = self.unknown, None if self.unknown is None else self.words[self.unknown]

        def measure(word: str) -> Lost:
            encoding = self._reader.encode(word, add_special_tokens=False)
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            marks = sum(i == unknown and word[slice(*span)] == name for i, span in spans)
            lost = Lost(0 if self.decode(encoding.ids) == word else len(word.encode()), marks)
            if lost == (0, 0) and len(self._whole) < WORDS:
                self._whole.add(word)
            return lost

        return lru_cache(WORDS)(measure)

    def require_text(self, lines: Iterable[str], name: object) -> None:
        """Check that no line contains a special token's name that cannot be encoded as text.

        Raises: UsageError: a line contains such a special token's name; the message begins with the argument `name` and
            the line number.
        """
        names = [each.lower() for each in self._refused.values()]
        if not names:
            return
        for number, line in enumerate(lines, 1):
            if any(each in line.lower() for each in names):
                try:
                    self.encode(line)
                except UsageError as error:
                    raise UsageError(f"{name}, line {number}: {error}") from None

    @cached_property
    def _reader(self) -> HuggingFaceTokenizer:
        """Return the Hugging Face tokenizer that encodes texts.

        The vocabulary of a unigram model contains the names of special tokens as pieces. The returned tokenizer splits
        these names in a text after the first character, so that the names are encoded as ordinary text.
        """
        if not isinstance(self._tokenizer.model, models.Unigram) or not self.special_ids:
            return self._tokenizer
        reader = HuggingFaceTokenizer.from_str(self._tokenizer.to_str())
        reader.encode_special_tokens = True
        rests = defaultdict(list)
        for name in self.special_ids:
            rests[re.escape(name[:1])].append(re.escape(name[1:]))
        splits = "|".join(f"{first}(?=(?:{'|'.join(of)}))" for first, of in rests.items())
        parts = [] if reader.pre_tokenizer is None else [reader.pre_tokenizer]
        reader.pre_tokenizer = pre_tokenizers.Sequence([*parts, pre_tokenizers.Split(Regex(splits), "isolated")])
        return reader

    @cached_property
    def _marked(self) -> HuggingFaceTokenizer:
        """Return a Hugging Face tokenizer that encodes the name of a special token in a text as the special token."""
        return HuggingFaceTokenizer.from_str(self._tokenizer.to_str())

    @cached_property
    def _refused(self) -> dict[int, str]:
        """Return the special tokens, except the unknown token, whose names cannot be encoded as ordinary text."""
        names = [*self.special_ids]
        if isinstance(self._tokenizer.model, models.WordLevel):
            names += [END_OF_LINE, *SENTENCE]
        ids = {self._tokenizer.token_to_id(name): name for name in names}
        read = {i: name for i, name in ids.items() if i in self._reader.encode(name, add_special_tokens=False).ids}
        return {i: name for i, name in read.items() if i != self.unknown}

    def _require_text(self, text: str, ids: Sequence[int]) -> None:
        for i, name in self._refused.items():
            ends = text.count("\n") if name == END_OF_LINE else 0
            if ids.count(i) > ends:
                at = max(text.lower().find(name.lower()), 0)
                raise TextError(
                    f"{text[max(at - 30, 0) : at + 30].strip()!r} contains {name}, which this tokenizer reserves; "
                    f"remove it (from line ends with corpus.write.strip=[{name}]), or write another word",
                    text,
                    name,
                )

    def _ids(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        _require_characters(texts)
        reader = self._marked if special else self._reader
        results = [encoding.ids for encoding in reader.encode_batch_fast(texts, add_special_tokens=False)]
        if not special and self._refused:
            for text, ids in zip(texts, results, strict=True):
                self._require_text(text, ids)
        return results


def _lone(spaces: re.Match[str]) -> bool:
    """Return whether `spaces`, a match of `_SPACES`, is a single space between two words."""
    return spaces[0] == " " and spaces.start() > 0 and spaces.end() < len(spaces.string)


def _require_characters(texts: Sequence[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"character {error.start + 1} of the text is the lone surrogate U+{ord(text[error.start]):04X}, which "
                "is not a character; read the text as UTF-8"
            ) from None


def to_learn_from(lines: Iterable[str], characters: int) -> Iterator[str]:
    """Yield the lines from which a trainer learns the pieces of a tokenizer.

    From a text of more than `characters` characters, random lines are drawn with a fixed seed, until their total length
    is about `characters`. If a line contains a word or a run of white space of more than LONGEST characters, the line
    is cut into parts of LONGEST characters. Without these cuts, training would take too long: the time grows with the
    square of the word length (10 s for a word of 100,000 characters). `lines` is iterated twice; an iterator is first
    read into memory.

    Args:
        characters: largest number of characters to learn from.
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
    """Memory-map the token ids of a `.bin` file.

    Raises: UsageError: the file is empty or truncated, or contains an id of `vocab_size` or more.
    """
    try:
        tokens = np.memmap(path, dtype="<u2" if vocab_size <= 1 << 16 else "<u4", mode="r")
    except ValueError:  # the file is empty, or ends within an id
        raise UsageError(f"{path} is empty or truncated; run the tokenize stage again") from None
    if len(tokens) and int(tokens[: 1 << 20].max()) >= vocab_size:
        raise UsageError(f"{path} has ids beyond the vocabulary of {vocab_size}; run the tokenize stage again")
    return tokens
