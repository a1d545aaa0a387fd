"""Write a corpus from one file: train on its beginning and hold out its end; lines may be shuffled first."""

import random
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

from retable.core.errors import UsageError, require_file
from retable.core.settings import Seed, Share
from retable.corpora.text import SPLITS, read_lines, without_blank_lines

CHUNK = 1 << 16  # bytes that are read at a time


def write_cut(
    folder: Path,
    source: str,
    train: Share,
    test: Share,
    unit: Literal["line", "document"] = "line",
    blank_lines: bool = False,
) -> dict[str, float]:
    """Cut a file into three consecutive parts: train.txt, validation.txt and test.txt.

    `train` and `test` are shares of the file's bytes; the validation split is the text between these two splits. With
    test=0, test.txt is a copy of validation.txt. A file is cut only between characters, and a split that would end
    within a line gets a final line end. A byte-order mark is removed. Memory use does not depend on the size of the
    file.

    Args:
        unit: units of the corpus. Blank lines separate documents; in a corpus of lines, blank lines are removed.
        blank_lines: whether to include blank lines even if units are lines.

    Returns: the number of characters, lines and words of each split.
    Raises: UsageError: the file is missing or not UTF-8, or a split is empty.
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
                shares = f"train={train} and test={test} of {path}"
                raise UsageError(f"{shares} leave no text for {split}; write other shares")
            counts |= {f"{split}/{name}": count for name, count in part.items()}
    return counts


def write_shuffled_lines(folder: Path, source: str, train: Share, test: Share, seed: Seed) -> dict[str, float]:
    """Shuffle the lines of a file as Python's `random.seed(seed)` and `random.shuffle` do, and cut them into splits.

    `train` and `test` are shares of the lines; the validation split is the lines between these two splits. Blank lines
    are removed.

    Returns: the number of characters and lines of each split.
    Raises: UsageError: the file is missing or not UTF-8, or a split is empty.
    """
    lines = [line for line in read_lines(Path(source)) if line.strip()]
    random.Random(seed).shuffle(lines)  # noqa: S311
    cuts = [0, int(len(lines) * train), int(len(lines) * (1 - test)), len(lines)]
    counts: dict[str, float] = {}
    for split, (start, stop) in zip(SPLITS, pairwise(cuts), strict=True):
        if start >= stop:
            raise UsageError(f"train={train} and test={test} of {source} leave no line for {split}; write other shares")
        text = "".join(f"{line}\n" for line in lines[start:stop])
        (folder / f"{split}.txt").write_text(text, encoding="utf-8", newline="")
        counts |= {f"{split}/characters": len(text), f"{split}/lines": stop - start}
    return counts


def _copy(file: BinaryIO, start: int, stop: int, to: Path, blank_lines: bool) -> dict[str, int] | None:
    """Copy the text from byte `start` to `stop`, and add a line end if the text does not end with one.

    Returns: the number of characters, lines and words, or None if there are no words.
    """
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
    """Yield the text from byte `start` to `stop` in parts.

    Raises: UsageError: the bytes are not UTF-8.
    """
    decoder = getincrementaldecoder("utf-8")()
    file.seek(start)
    while chunk := file.read(max(min(CHUNK, stop - file.tell()), 0)):
        begun = file.tell() - len(chunk) - len(decoder.getstate()[0])
        try:
            yield decoder.decode(chunk, final=file.tell() == stop)
        except UnicodeDecodeError as error:
            place = f"{file.name}: byte {begun + error.start + 1}"
            raise UsageError(f"{place} is not UTF-8; convert the file, for example with iconv -t UTF-8") from None


def _boundary(file: BinaryIO, place: int) -> int:
    """Return the first character boundary at or after byte `place`."""
    file.seek(place)
    while (byte := file.read(1)) and byte[0] & 0xC0 == 0x80:
        place += 1
    return place
