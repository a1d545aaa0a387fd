"""Read zero-shot questions for language models: HellaSwag, PIQA, LAMBADA, and tables with labels.

A question consists of named fields and of choices. The fields fill a prompt template; one of the choices is correct.
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
    """The fields and choices of a zero-shot question."""

    fields: dict[str, str]
    choices: tuple[str, ...]
    answer: int  # index of the correct choice


class HellaSwag:
    """HellaSwag (Zellers et al. 2019), from hellaswag_val.jsonl of https://github.com/rowanz/hellaswag or the hub.

    The field `context` contains the activity and the text that the endings continue. For comparable scores, texts are
    cleaned as in the Language Model Evaluation Harness: WikiHow's ` [title]` is replaced by a period, and other text in
    brackets is removed. The second part of the context, an incomplete sentence, begins with a capital letter.
    """

    def __init__(self, path: str):
        self.inputs = [Path(path)]

    def read(self) -> list[Question]:
        """Read all questions.

        Raises: UsageError: a line is malformed or has no label. Reading HellaSwag's test set raises this error, since
        the test set has no labels.
        """
        path, questions = self.inputs[0], []
        for record in read_records(path, "endings", "label", texts=("activity_label", "ctx_a", "ctx_b")):
            endings = record["endings"]
            if not isinstance(endings, list) or len(endings) < 2 or not all(isinstance(each, str) for each in endings):
                raise UsageError(f"{path}: endings {endings!r} must be a list of two or more strings")
            label = _place(path, record["label"], len(endings))
            context = {"context": _without_brackets(_context(record))}
            questions.append(Question(context, tuple(map(_without_brackets, endings)), label))
        return questions


def _context(record: Mapping[str, str]) -> str:
    return f"{record['activity_label']}: {record['ctx_a']} {record['ctx_b'].capitalize()}"


def _without_brackets(text: str) -> str:
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


class PIQA:
    """PIQA (Bisk et al. 2020), from valid.jsonl and valid-labels.lst of https://yonatanbisk.com/piqa, or from the hub.

    The field for prompts is `goal`.

    path: a file of JSON lines. If `labels` is None, each line needs a field `label`, as on the hub.
    labels: a file with the label of each line, 0 or 1.
    """

    def __init__(self, path: str, labels: str | None = None):
        self.inputs = [Path(path), *([Path(labels)] if labels else [])]

    def read(self) -> list[Question]:
        """Read all questions.

        Raises: UsageError: the two files do not have the same number of lines, or a line is malformed.
        """
        path, *labels = self.inputs
        choices = read_choices(path, "goal", ("sol1", "sol2"), None if labels else "label", *labels)
        return [
            Question({"goal": goal}, tuple(solutions), place)
            for goal, solutions, place in choices
            if place is not None  # this condition is for the type checker: every choice has a label
        ]


class Labelled:
    """Questions in a table (.tsv, .csv or .jsonl), one question per row.

    Every column is a field of the question; surrounding spaces are removed.

    Args:
        label: name of the column with the label.
        words: maps each label to its text; these texts, in this order, are the choices of every question.
        columns: names of the columns, for a file without a header.
    """

    def __init__(self, path: str, label: str, words: Mapping[str, str], columns: Sequence[str] | None = None):
        self.inputs, self.label, self.words = [Path(path)], label, {str(key): word for key, word in words.items()}
        self.columns = columns

    def read(self) -> list[Question]:
        """Read the questions of all rows.

        Raises: UsageError: a column is missing, a label is unknown, or a row has the wrong number of fields.
        """
        places, choices = {label: place for place, label in enumerate(self.words)}, tuple(self.words.values())
        questions = []
        for number, row in enumerate(_rows(self.inputs[0], self.label, self.columns), 1):
            label = row[self.label]
            if label not in places:
                known = ", ".join(map(repr, places))
                raise UsageError(
                    f"{self.inputs[0]}, row {number}: label {label!r} is not one of {known}; add this label to words"
                )
            questions.append(Question(row, choices, places[label]))
        return questions


def _rows(path: Path, column: str, columns: Sequence[str] | None) -> Iterator[dict[str, str]]:
    if path.suffix == ".jsonl":
        for record in read_records(path, column):
            yield {key: str(value).strip() for key, value in record.items()}
        return
    text = (f"{line}\n" for line in read_lines(path))
    # In .tsv files, as in GLUE, quotation marks are ordinary characters.
    of_tabs: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    lines = csv.reader(text, **(of_tabs if path.suffix == ".tsv" else {}))
    with reading(path, csv.Error):
        header = next(lines, []) if columns is None else [*columns]
        require_distinct(path, header)
        if column not in header:
            raise UsageError(f"{path} has no column {column!r}; write one of {', '.join(map(repr, header))}")
        for row in filter(None, lines):  # skips blank lines
            if len(row) != len(header):
                raise UsageError(f"{path}, line {lines.line_num}: expects {len(header)} fields but got {len(row)}")
            yield dict(zip(header, map(str.strip, row), strict=True))


class Lambada:
    """LAMBADA (Paperno et al. 2016): passages whose last word is to be predicted.

    The file contains one passage per line: plain text or, as in OpenAI's version, JSON (.jsonl) with a key `text`.
    """

    def __init__(self, path: str):
        self.inputs = [Path(path)]

    def read(self) -> list[tuple[str, str]]:
        """Read the passages; split each passage into the text before its last word and the last word.

        Raises: UsageError: the file has no passages, or a passage has only one word.
        """
        path = self.inputs[0]
        texts: Sequence[str]
        if path.suffix == ".jsonl":
            texts = [record["text"] for record in read_records(path, texts=("text",))]
        else:
            texts = [*filter(str.strip, read_lines(path))]
        if not texts:
            raise UsageError(f"{path} has no passages; write one passage per line")
        passages = []
        for number, text in enumerate(texts, 1):
            context, _, word = text.rstrip().rpartition(" ")
            if not context.strip():
                raise UsageError(f"{path}, passage {number}: {text!r} has only one word; write two or more words")
            passages.append((context.rstrip(), word))
        return passages


def _place(path: Path, label: object, n_choices: int) -> int:
    text = str(label).strip()
    if text not in map(str, range(n_choices)):
        raise UsageError(f"{path}: label {text!r} must be a number from 0 to {n_choices - 1}; use a split with labels")
    return int(text)
