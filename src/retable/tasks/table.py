"""Labelled sentences from delimited text with a header."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from retable.corpora.text import read_lines
from retable.errors import UsageError


class Example(NamedTuple):
    sentence: str
    label: int


def read_examples(path: Path, sentence: str, label: str, labels: Sequence[str]) -> list[Example]:
    """The rows of a TSV file; columns go by their names in the header, a label becomes its place in `labels`.

    Raises UsageError for a missing file, a column or a label that is not there, a short row, or a file without rows.
    """
    lines = csv.reader(read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(lines, [])
    for column in (sentence, label):
        if column not in header:
            raise UsageError(
                f"{path} has no column {column!r}; its header names {', '.join(map(repr, header)) or 'nothing'}: "
                "set task.sentence and task.label to columns that it has"
            )
    places = {name: place for place, name in enumerate(labels)}
    examples = []
    for number, row in enumerate(lines, 2):
        if len(row) != len(header):
            raise UsageError(f"{path}, line {number}: {len(row)} fields where the header has {len(header)}")
        fields = dict(zip(header, row, strict=True))
        if fields[label] not in places:
            raise UsageError(
                f"{path}, line {number}: label {fields[label]!r} is none of {', '.join(map(repr, labels))}"
            )
        examples.append(Example(fields[sentence], places[fields[label]]))
    if not examples:
        raise UsageError(f"{path} holds a header and no examples")
    return examples
