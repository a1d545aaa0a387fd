"""Read and write corpora as text files with one sentence per line, and split corpora into units."""

import codecs
import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from retable.core.errors import UsageError, require_file

csv.field_size_limit(2**31 - 1)  # characters; a field may contain a document

SPLITS = ("train", "validation", "test")
LONGEST = 50_000  # largest number of words per text; two steps of an RNN on 300,000 words took more than a minute


def write_corpus(
    folder: Path, train: str, validation: str, test: str, documents: bool = False, strip: Sequence[str] = ()
) -> dict[str, float]:
    """Copy three text files to `<split>.txt`, one sentence per line, with single spaces between words.

    Args:
        documents: whether blank lines separate documents. If so, the copy has a blank line after each document;
            otherwise blank lines are removed.
        strip: words, such as `<s>` and `<eos>`, to remove from the beginning and end of each line.

    Returns: the number of lines and words of each split.
    Raises: UsageError: a file is missing, has no words, or is not UTF-8.
    """
    counts: dict[str, float] = {}
    for split, source in zip(SPLITS, (train, validation, test), strict=True):
        lines = words = 0
        open_document = False
        with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as target:
            for line in read_lines(Path(source)):
                tokens = _stripped(line.split(), strip)
                if tokens or (documents and open_document):
                    target.write(" ".join(tokens) + "\n")
                    lines, words = lines + bool(tokens), words + len(tokens)
                open_document = bool(tokens)
            if documents and open_document:
                target.write("\n")
        if not lines:
            raise UsageError(f"{source} has no words; the {split} split needs at least one line of text")
        counts |= {f"{split}/lines": lines, f"{split}/words": words}
    return counts


def _stripped(words: list[str], marks: Sequence[str]) -> list[str]:
    if not marks:
        return words
    kept = [place for place, word in enumerate(words) if word not in marks]
    return words[kept[0] : kept[-1] + 1] if kept else []


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a file without line ends. Line ends may be LF, CR LF or, in a file without LF, CR.

    A byte-order mark is removed.

    Raises: UsageError: the file is missing, or its bytes are not in `encoding`.
    """
    require_file(path)
    wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    for number, line in enumerate(_wide_to_lf(path, encoding) if wide else _to_lf(path, encoding), 1):
        if number == 1:
            line = line.removeprefix("\ufeff")
            if "\r" in line and not line.endswith("\n"):  # the whole file has no LF
                yield from line.removesuffix("\r").split("\r")
                return
        yield line.rstrip("\r\n")


def _to_lf(path: Path, encoding: str) -> Iterator[str]:
    """Yield a file's lines, which end in LF, if LF is one byte in `encoding`."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode(encoding)
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{path}, line {number}: byte {error.start + 1} of the line is not {encoding.upper()} "
                    f"(0x{line[error.start]:02x}); convert the file, for example with iconv -t UTF-8"
                ) from None


def _wide_to_lf(path: Path, encoding: str) -> Iterator[str]:
    """Yield a file's lines, which end in LF, if `encoding` is UTF-16 or UTF-32.

    In these encodings, LF has several bytes.
    """
    with path.open(encoding=encoding, newline="\n") as file:
        try:
            yield from file
        except UnicodeError as error:
            raise UsageError(f"{path} is not {encoding.upper()} ({error}); convert the file to UTF-8") from None


def require_length(place: str, n_words: int) -> None:
    """Check that a text is not too long.

    A text is often too long because the end of a row or sentence is missing.

    Raises: UsageError: the text has more than LONGEST words.
    """
    if n_words > LONGEST:
        raise UsageError(
            f"{place}: the text has {n_words} words; write {LONGEST} or fewer, since a model reads a whole text at once"
        )


def lines_of(text: str) -> list[str]:
    """Split a text into lines as `read_lines` does: without a byte-order mark, CR, or an empty line at the end."""
    lines = text.removeprefix("\ufeff").split("\n" if "\n" in text else "\r")
    if len(lines) > 1 and not lines[-1]:
        del lines[-1]
    return [line.rstrip("\r") for line in lines]


def with_line_feeds(text: str) -> str:
    """Return a text as `read_lines` would read it from a file: without a byte-order mark, and with LF as line end.

    A line end at the end of the text stays.
    """
    ends = text.endswith("\n") or ("\n" not in text and text.endswith("\r"))
    return "\n".join(lines_of(text)) + "\n" * ends


def is_blank(line: str) -> bool:
    """Return whether a line is empty or has only white space."""
    return not line or line.isspace()


def without_blank_lines(texts: Iterable[str]) -> Iterator[str]:
    """Remove blank lines from a text that is read and yielded in parts; a part may begin or end within a line."""
    # `held`: white space at the start of a line that has no words yet. `within`: whether the last part ended inside a
    # line with words.
    held, within = "", False
    for text in texts:
        *lines, last = (held + text).split("\n")
        whole = [f"{line}\n" for place, line in enumerate(lines) if (within and place == 0) or not is_blank(line)]
        within = (within and not lines) or not is_blank(last)
        held = "" if within else last
        yield "".join([*whole, last if within else ""])


def read_units(path: Path, unit: str) -> Iterator[list[str]]:
    """Yield the units of a corpus, each as a list of lines.

    A unit is a text whose likelihood is computed as a whole. With unit="line", each line is a unit. With
    unit="document", the lines between two blank lines are a unit.

    Raises: UsageError: the file is missing or is not in UTF-8.
    """
    if unit == "line":
        yield from ([line] for line in read_lines(path))
    else:
        for blank, lines in groupby(read_lines(path), key=is_blank):
            if not blank:
                yield list(lines)
