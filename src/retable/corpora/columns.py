"""Read the column format of the CoNLL shared tasks.

Each line contains a word and its annotations; a blank line ends a sentence.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.text import read_lines, require_length

SEPARATOR = re.compile(r"[ \t]+")  # not \s, because a word may contain a no-break space
DIGIT = re.compile(r"[0-9]")
DOCUMENT = "-DOCSTART-"  # the word that marks the start of a document in CoNLL-2003


class TaggedSentence(NamedTuple):
    """A sentence with one tag per word."""

    words: list[str]
    tags: list[str]  # one per word
    predicate: int | None = None  # for semantic roles: index of the verb that `tags` belong to


class Row(NamedTuple):
    """The columns of one line of a file."""

    line: int  # line number, counted from 1
    fields: list[str]


def read_tagged(
    path: Path, word: int = 0, tag: int = -1, pos: int | None = None, chunk: str | None = None
) -> list[TaggedSentence]:
    """Read the sentences of a file with columns separated by spaces or tabs, for NER, chunking or parts of speech.

    Lines with -DOCSTART- are skipped; they end a sentence like a blank line. Tags are not changed, so they remain in
    the scheme of the file, such as IOB1 in CoNLL-2003.

    Args:
        word, tag: column numbers, counted from 0. Negative numbers count from the end: −1 is the last column.
        pos: column of the part of speech, which is appended to the word, as in `dog/NN`; None to append nothing.
        chunk: the only type of chunks to predict, such as NP; the tags of other chunks are replaced by O. If `chunk` is
            None, all types are used.

    Raises: UsageError: the file is missing or has no sentences, a column does not exist, the number of columns varies,
        or a line is a comment.
    """
    sentences: list[TaggedSentence] = []
    width = first = 0
    for rows in read_sentences(path):
        for row in rows:
            if "=" in row.fields[2:3] and row.fields[0] == "#":
                raise UsageError(f"{path}, line {row.line}: the line is a comment; remove the comments of the file")
            if not width:
                width, first = len(row.fields), row.line
                require_columns(path, row, word=word, tag=tag, pos=word if pos is None else pos)
            if len(row.fields) != width:
                raise UsageError(
                    f"{path}, line {row.line}: expects {width} columns, as in line {first}, but got "
                    f"{len(row.fields)}; write the same columns in each line, and no comments"
                )
        words, tags = ([row.fields[column] for row in rows] for column in (word, tag))
        if pos is not None:
            words = [f"{each}/{row.fields[pos]}" for each, row in zip(words, rows, strict=True)]
        if chunk is not None:
            tags = [each if each.partition("-")[2] == chunk else "O" for each in tags]
        sentences.append(TaggedSentence(words, tags))
    if not sentences:
        raise UsageError(f"{path} has no sentences; write one word per line, and a blank line after each sentence")
    return sentences


def read_zeroed(path: Path, word: int = 0, tag: int = -1) -> list[TaggedSentence]:
    """Read sentences as `read_tagged` does, and replace each digit of a word by 0 (Lample et al. 2016, section 5.2)."""
    return [each._replace(words=[DIGIT.sub("0", one) for one in each.words]) for each in read_tagged(path, word, tag)]


def read_sentences(path: Path) -> Iterator[list[Row]]:
    """Yield the rows of each sentence; blank lines and -DOCSTART- separate sentences."""
    rows: list[Row] = []
    for row in read_rows(path):
        if row.fields and row.fields[0] != DOCUMENT:
            rows.append(row)
            require_length(f"{path}, line {row.line}", len(rows))
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the columns of each line; a blank line has no columns.

    Raises: UsageError: the file is missing, or a line contains a carriage return although other lines end in LF.
    """
    for number, line in enumerate(read_lines(path), 1):
        if "\r" in line:
            raise UsageError(
                f"{path}, line {number}: a carriage return (CR) is inside the line; remove it, or end the line there "
                "with LF"
            )
        stripped = line.strip(" \t")
        yield Row(number, SEPARATOR.split(stripped) if stripped else [])


def require_columns(path: Path, row: Row, **columns: int) -> None:
    """Check that `row` has the columns with the given numbers.

    Raises: UsageError: a column does not exist.
    """
    width = len(row.fields)
    for name, column in columns.items():
        if not -width <= column < width:
            raise UsageError(
                f"{path}, line {row.line}: {name}={column} does not exist; the line has {width} columns: write 0 to "
                f"{width - 1}, or −1 for the last column"
            )
