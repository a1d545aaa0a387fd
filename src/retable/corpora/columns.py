"""Sentences in columns, as the CoNLL shared tasks write them: a word a line with its annotations, a blank line behind
each sentence."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.text import read_lines, require_length

SEPARATOR = re.compile(r"[ \t]+")  # no other space: a word may hold a no-break space
DOCUMENT = "-DOCSTART-"  # stands for a word where CoNLL-2003 begins a document


class TaggedSentence(NamedTuple):
    words: list[str]
    tags: list[str]  # one a word
    predicate: int | None = None  # the place of the verb whose roles they are; each verb has a sentence of its own


class Row(NamedTuple):
    line: int  # of the file, from 1 on
    fields: list[str]


def read_tagged(path: Path, word: int = 0, tag: int = -1) -> list[TaggedSentence]:
    """The sentences of a file of columns parted by spaces or tabs: NER, chunking, parts of speech.

    Columns are counted from 0, or back from the last, −1. Lines -DOCSTART- are left out. UsageError for a missing file,
    one without sentences, a column that is not there, or a line with more or fewer columns than the first.
    """
    sentences: list[TaggedSentence] = []
    width = 0
    for rows in read_sentences(path):
        if not width:
            width = len(rows[0].fields)
            require_columns(path, rows[0], word=word, tag=tag)
        for row in rows:
            if len(row.fields) != width:
                raise UsageError(f"{path}, line {row.line}: {len(row.fields)} columns where the first line has {width}")
        sentences.append(TaggedSentence([row.fields[word] for row in rows], [row.fields[tag] for row in rows]))
    if not sentences:
        raise UsageError(f"{path} holds no sentences; it needs a word a line, a blank line behind each sentence")
    return sentences


def read_sentences(path: Path) -> Iterator[list[Row]]:
    """The lines between blank ones, cut into columns, with their numbers."""
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
    """All lines, cut into columns; a blank one has none."""
    for number, line in enumerate(read_lines(path), 1):
        stripped = line.strip(" \t")
        yield Row(number, SEPARATOR.split(stripped) if stripped else [])


def require_columns(path: Path, row: Row, **columns: int) -> None:
    """UsageError where `row` lacks one of the columns, each a number by what it is for."""
    width = len(row.fields)
    for name, column in columns.items():
        if not -width <= column < width:
            raise UsageError(
                f"{path}, line {row.line}: {name}={column} is none of the {width} columns; write 0 to {width - 1}, or "
                "−1 for the last"
            )
