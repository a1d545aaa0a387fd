"""Corpora that are one file, cut into a beginning for training and an end to hold out."""

from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

from retable.core.errors import UsageError, require_file
from retable.core.settings import Share
from retable.corpora.text import SPLITS, without_blank_lines

CHUNK = 1 << 16  # bytes that are in memory at a time


def write_cut(
    folder: Path,
    source: str,
    train: Share,
    test: Share,
    unit: Literal["line", "document"] = "line",
    blank_lines: bool = False,
) -> dict[str, float]:
    """Write the first `train` of the file's bytes to train.txt, the last `test` to test.txt, the rest between them to
    validation.txt: as they are, runs of spaces too. No cut falls inside a character. A byte-order mark is left out.

    Blank lines are left out of a corpus of lines, as by `write_corpus`, unless `blank_lines` keeps them. In a corpus of
    documents they separate documents.

    With test=0 nothing is left for a third split, and test.txt is validation.txt's text again.

    A part that ends inside a line gets a line end, one character more than the cut gave it. Returns the counts of
    characters, lines and words of each split. Raises UsageError where the file is missing, is not UTF-8, or where the
    shares leave a split without text. A file of any size takes the same memory.
    """
    path = Path(source)
    require_file(path)
    counts: dict[str, float] = {}
    keep = blank_lines or unit == "document"
    with path.open("rb") as file:
        begin = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        end = path.stat().st_size
        size = end - begin
        cuts = [begin, _boundary(file, begin + int(size * train)), _boundary(file, end - int(size * test)), end]
        spans = dict(zip(SPLITS, pairwise(cuts), strict=True))
        if test == 0:
            spans["test"] = spans["validation"]
        for split, (start, stop) in spans.items():
            if (part := _copy(file, start, stop, folder / f"{split}.txt", keep)) is None:
                said = f"train={train} and test={test} of {path}"
                raise UsageError(f"{said} leave no text for {split}; write other shares")
            counts |= {f"{split}/{name}": count for name, count in part.items()}
    return counts


def _copy(file: BinaryIO, start: int, stop: int, to: Path, blank_lines: bool) -> dict[str, int] | None:
    """Copy the text from byte `start` to `stop`, with a line end at the end. Return the counts of the copy, None where
    it has no words."""
    characters = lines = words = 0
    within_word, last = False, ""
    texts = _decoded(file, start, stop)
    with to.open("w", encoding="utf-8", newline="") as copy:
        for text in filter(None, texts if blank_lines else without_blank_lines(texts)):
            copy.write(text)
            characters, lines = characters + len(text), lines + text.count("\n")
            words += len(text.split()) - (within_word and not text[0].isspace())
            last, within_word = text[-1], not text[-1].isspace()
        if last != "\n":
            copy.write("\n")
            characters, lines = characters + 1, lines + 1
    return {"characters": characters, "lines": lines, "words": words} if words else None


def _decoded(file: BinaryIO, start: int, stop: int) -> Iterator[str]:
    """Yield the text from byte `start` to `stop` in parts. UsageError where it is not UTF-8."""
    decoder = getincrementaldecoder("utf-8")()
    file.seek(start)
    while chunk := file.read(max(min(CHUNK, stop - file.tell()), 0)):
        begun = file.tell() - len(chunk) - len(decoder.getstate()[0])
        try:
            yield decoder.decode(chunk, final=file.tell() == stop)
        except UnicodeDecodeError as error:
            place = f"{file.name}: byte {begun + error.start + 1}"
            raise UsageError(f"{place} is not UTF-8; convert it, as iconv -t UTF-8 does") from None


def _boundary(file: BinaryIO, place: int) -> int:
    """`place`, or the end of the character that it falls into."""
    file.seek(place)
    while (byte := file.read(1)) and byte[0] & 0xC0 == 0x80:
        place += 1
    return place
