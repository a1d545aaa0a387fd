"""One interface over Hugging Face tokenizers: text to token ids and back, and units of text to streams of ids."""

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
LONGEST = 1000
LEARN_FROM = 100_000_000  # characters of a text that pieces are learnt from; a trainer takes 1 kB for each word's type
_LONG = re.compile(rf"\S{{{LONGEST + 1}}}|\s{{{LONGEST + 1}}}")
_SPACES = re.compile(r"\s+")
WORDS = 1 << 16  # different words whose measures are kept in memory


class Ends(NamedTuple):
    """How a tokenizer marks ends in a stream."""

    boundary: str  # the token before the first of a stream
    line: str  # the text that a line ends with; "": the boundary ends it
    document: str  # the text of the blank line after a document, or the same


# The first whose token a tokenizer has. A word tokenizer reads "\n" as <eos> and a blank line as a lone one; WordPiece
# and SentencePiece drop line ends, so that a mark of theirs has to stand for them.
ENDS = (
    Ends(END_OF_TEXT, "\n", ""),
    Ends(END_OF_LINE, "\n", "\n"),
    Ends("[SEP]", "", ""),
    Ends("</s>", "", ""),
)
SENTENCE = ("<s>", "</s>")  # marks of sentences that a text may bring along, and n-gram models have themselves


class Token(NamedTuple):
    id: int
    start: int  # in bytes of the UTF-8 text
    end: int


class Lost(NamedTuple):
    """What the tokens of a text leave open."""

    bytes: int  # of the text that the tokens do not determine
    marks: int  # tokens that are the text's own <unk>, and no word that the vocabulary lacks


class Tokenizer:
    """A trained tokenizer, or any `tokenizer.json` of the Hugging Face format.

    A special token in a text is read as text. Where the model can't read it so, as one of words can't read `<eos>`, the
    text is refused.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer):
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True  # as text, that is; no file keeps it
        self.vocab_size: int = tokenizer.get_vocab_size()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._tokenizer,)

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

    @cached_property
    def unknown(self) -> int | None:
        """The id that stands for whatever the vocabulary lacks; None where there is nothing of the kind."""
        model = self._tokenizer.model
        if isinstance(model, models.Unigram):
            return json.loads(self._tokenizer.to_str())["model"]["unk_id"]
        return None if model.unk_token is None else self._tokenizer.token_to_id(model.unk_token)

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

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of `text` alone, without the marks that a model's template would put round it.

        With `special` the names of special tokens in the text are these tokens. Raises UsageError for a lone surrogate,
        which is half a character and has no UTF-8, and for a special token that can't be read as text.
        """
        return self._ids([text], special)[0]

    def encode_batch(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """`encode` for each of `texts`, on all cores."""
        return self._ids(texts, special)

    def encode_with_offsets(self, text: str) -> list[Token]:
        """The tokens of `text` with the bytes of its UTF-8 that each was made from."""
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
        """For each unit, a list of lines: its ids, its words (each line end counts as one), its bytes.

        With `documents`, the blank line that ends each unit is part of it.
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
        """What the tokens of these lines leave open: unknown words, case, or white space but a space between words."""
        size = marks = 0
        for line in lines:
            words = line.split()
            if not self._whole.issuperset(words):  # three times as fast as to look at each word
                of_words = [self._of_word(word) for word in words]
                size += sum(each.bytes for each in of_words)
                marks += sum(each.marks for each in of_words)
            if " ".join(words) != line and self.decode(self.encode(line)) != line:
                spaces = (found for found in _SPACES.finditer(line) if not _lone(found))
                size += sum(len(found[0].encode()) for found in spaces)
        return Lost(size, marks)

    @cached_property
    def _whole(self) -> set[str]:
        """Some words of which the tokens leave nothing open."""
        return set()

    @cached_property
    def _of_word(self) -> Callable[[str], Lost]:
        """What of a word without white space its tokens leave open: all of it, or nothing."""
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
        """Raise UsageError for the first line of `name` that holds a special token which can't be read as text."""
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
        """What reads texts. A unigram model has its special tokens among its pieces, so that in a text they are cut."""
        if not isinstance(self._tokenizer.model, models.Unigram) or not self.special_ids:
            return self._tokenizer
        reader = HuggingFaceTokenizer.from_str(self._tokenizer.to_str())
        reader.encode_special_tokens = True
        rests = defaultdict(list)
        for name in self.special_ids:
            rests[re.escape(name[:1])].append(re.escape(name[1:]))
        behind = "|".join(f"{first}(?=(?:{'|'.join(of)}))" for first, of in rests.items())
        parts = [] if reader.pre_tokenizer is None else [reader.pre_tokenizer]
        reader.pre_tokenizer = pre_tokenizers.Sequence([*parts, pre_tokenizers.Split(Regex(behind), "isolated")])
        return reader

    @cached_property
    def _marked(self) -> HuggingFaceTokenizer:
        """What reads texts with the names of special tokens in them."""
        return HuggingFaceTokenizer.from_str(self._tokenizer.to_str())

    @cached_property
    def _refused(self) -> dict[int, str]:
        """Special tokens that the model reads by their names, as those of words are read; the unknown one is none."""
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
                    f"{text[max(at - 30, 0) : at + 30].strip()!r} contains {name}, which this tokenizer reserves; remove it "
                    f"(from the ends of lines: corpus.write.strip=[{name}] with write_corpus), or write another word",
                    text,
                    name,
                )

    def _ids(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        _require_characters(texts)
        reader = self._marked if special else self._reader
        found = [encoding.ids for encoding in reader.encode_batch_fast(texts, add_special_tokens=False)]
        if not special and self._refused:
            for text, ids in zip(texts, found, strict=True):
                self._require_text(text, ids)
        return found


def _lone(spaces: re.Match[str]) -> bool:
    """Whether this is one space between two words."""
    return spaces[0] == " " and spaces.start() > 0 and spaces.end() < len(spaces.string)


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
