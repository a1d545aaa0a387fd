"""Questions that a language model answers without training, in their public formats: HellaSwag, PIQA, LAMBADA, tables.

A question has fields, which a template makes a prompt of, and choices, one of which is right.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError, reading
from retable.corpora.json_lines import read_records, require_distinct
from retable.corpora.multiple_choice import read_choices
from retable.corpora.text import read_lines


class Question(NamedTuple):
    fields: dict[str, str]
    choices: tuple[str, ...]
    answer: int  # the place of the right one


class HellaSwag:
    """Zellers et al. 2019, https://github.com/rowanz/hellaswag: hellaswag_val.jsonl, or that of the hub.

    The field `context` is the activity and what happened so far. Cleaned as in the Language Model Evaluation Harness,
    so that its numbers can be compared: WikiHow's ` [title]` becomes a period, other brackets go, and the second
    sentence of the context, which the endings go on, begins with a capital.
    """

    def __init__(self, path: str):
        self.inputs = [Path(path)]

    def read(self) -> list[Question]:
        """All questions. UsageError for a line that lacks anything, as in the test set, which has no labels."""
        path, questions = self.inputs[0], []
        for record in read_records(path, "endings", "label", texts=("activity_label", "ctx_a", "ctx_b")):
            endings = record["endings"]
            if not isinstance(endings, list) or len(endings) < 2 or not all(isinstance(each, str) for each in endings):
                raise UsageError(f"{path}: endings {endings!r} are no list of two or more texts")
            label = _place(path, record["label"], len(endings))
            context = {"context": _without_brackets(_context(record))}
            questions.append(Question(context, tuple(map(_without_brackets, endings)), label))
        return questions


def _context(record: Mapping[str, str]) -> str:
    return f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"


def _without_brackets(text: str) -> str:
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


class PIQA:
    """Bisk et al. 2020, https://yonatanbisk.com/piqa: valid.jsonl with valid-labels.lst beside it, or one file whose
    lines have a `label`, as that of the hub. The field is `goal`."""

    def __init__(self, path: str, labels: str | None = None):
        self.inputs = [Path(path), *([Path(labels)] if labels else [])]

    def read(self) -> list[Question]:
        """All questions. UsageError where the files don't belong together or a line lacks what is needed of it."""
        path, *labels = self.inputs
        choices = read_choices(path, "goal", ("sol1", "sol2"), None if labels else "label", *labels)
        return [
            Question({"goal": goal}, tuple(solutions), place)
            for goal, solutions, place in choices
            if place is not None  # which they all have
        ]


class Labelled:
    """Rows of a table: delimited text (.tsv, .csv), with a header or with `columns`, or JSON lines (.jsonl).

    All columns are fields, without the spaces round them. `words` says by label, in the order of the choices, in which
    words a prompt answers.
    """

    def __init__(self, path: str, label: str, words: Mapping[str, str], columns: Sequence[str] | None = None):
        self.inputs, self.label, self.words = [Path(path)], label, {str(key): word for key, word in words.items()}
        self.columns = columns

    def read(self) -> list[Question]:
        """All rows. UsageError for a missing column, an unknown label, or a row of another length than the header."""
        places, choices = {label: place for place, label in enumerate(self.words)}, tuple(self.words.values())
        questions = []
        for number, row in enumerate(_rows(self.inputs[0], self.label, self.columns), 1):
            label = row[self.label]
            if label not in places:
                known = ", ".join(map(repr, places))
                raise UsageError(
                    f"{self.inputs[0]}, row {number}: label {label!r} is none of {known}; name it in words"
                )
            questions.append(Question(row, choices, places[label]))
        return questions


def _rows(path: Path, column: str, columns: Sequence[str] | None) -> Iterator[dict[str, str]]:
    if path.suffix == ".jsonl":
        for record in read_records(path, column):
            yield {key: str(value).strip() for key, value in record.items()}
        return
    text = (f"{line}\n" for line in read_lines(path))
    of_tabs: dict[str, Any] = {
        "delimiter": "\t",
        "quoting": csv.QUOTE_NONE,
    }  # as GLUE's, whose quotation marks are text
    lines = csv.reader(text, **(of_tabs if path.suffix == ".tsv" else {}))
    with reading(path, csv.Error):
        header = next(lines, []) if columns is None else [*columns]
        require_distinct(path, header)
        if column not in header:
            raise UsageError(f"{path} has no column {column!r}; its header names {', '.join(map(repr, header))}")
        for row in filter(None, lines):  # a blank line is no row
            if len(row) != len(header):
                raise UsageError(f"{path}, line {lines.line_num}: {len(row)} fields where the header has {len(header)}")
            yield dict(zip(header, map(str.strip, row), strict=True))


class Lambada:
    """Paperno et al. 2016: passages whose last word is to be guessed, a line each: plain text, or JSON (.jsonl) with a
    key `text`, as OpenAI gave them out."""

    def __init__(self, path: str):
        self.inputs = [Path(path)]

    def read(self) -> list[tuple[str, str]]:
        """Each passage as what comes before its last word, and that word. UsageError for a passage of one word."""
        path = self.inputs[0]
        texts: Sequence[str]
        if path.suffix == ".jsonl":
            texts = [record["text"] for record in read_records(path, texts=("text",))]
        else:
            texts = [*filter(str.strip, read_lines(path))]
        if not texts:
            raise UsageError(f"{path} holds no passages; a line is one")
        passages = []
        for number, text in enumerate(texts, 1):
            context, _, word = text.rstrip().rpartition(" ")
            if not context.strip():
                raise UsageError(f"{path}, passage {number}: {text!r} has no word before the last")
            passages.append((context.rstrip(), word))
        return passages


def _place(path: Path, label: object, n_choices: int) -> int:
    text = str(label).strip()
    if text not in map(str, range(n_choices)):
        raise UsageError(f"{path}: label {text!r} is no place among {n_choices} choices; take a split that has labels")
    return int(text)
