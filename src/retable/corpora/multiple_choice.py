"""Beginnings with several endings to choose from: SWAG, HellaSwag, PIQA, and files like theirs."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError, reading
from retable.corpora.json_lines import read_objects, require_distinct
from retable.corpora.text import read_lines


class Choice(NamedTuple):
    context: str
    endings: list[str]
    label: int | None  # the right ending's place; None in a test set that keeps it back


def read_choices(
    path: Path, context: str, endings: str | Sequence[str], label: str | None = None, labels: Path | None = None
) -> list[Choice]:
    """The examples of a file of JSON lines, or of a .csv with a header, by the names of their fields.

    endings: the field that lists them, or a field for each.
    label: the field of the right ending's number, from 0 on; or `labels`, a file of those numbers, one a line. Neither
        in a test set without.

    SWAG, a .csv, has context=startphrase, endings=[ending0, ending1, ending2, ending3], label=label; HellaSwag
    context=ctx, endings=endings, label=label; PIQA context=goal, endings=[sol1, sol2] and `labels`. UsageError for a
    missing file, one without examples, a line of another shape, or labels that do not fit.
    """
    choices = []
    for line, fields in _rows(path):
        found = [_field(path, line, fields, name) for name in ([endings] if isinstance(endings, str) else endings)]
        options = found[0] if isinstance(endings, str) else found
        beginning = _field(path, line, fields, context)
        if not isinstance(beginning, str):
            raise UsageError(f"{path}, line {line}: field {context!r} is no text")
        if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
            raise UsageError(f"{path}, line {line}: {endings!r} holds no two or more texts to choose from")
        number = None if label is None else _label(path, line, _field(path, line, fields, label), len(options))
        choices.append(Choice(beginning, options, number))
    if not choices:
        raise UsageError(f"{path} holds no examples")
    return choices if labels is None else _labelled(path, choices, labels)


def _labelled(path: Path, choices: list[Choice], labels: Path) -> list[Choice]:
    numbers = list(read_lines(labels))
    if len(numbers) != len(choices):
        raise UsageError(f"{labels} has {len(numbers)} labels, and {path} {len(choices)} examples")
    return [
        choice._replace(label=_label(labels, line, number, len(choice.endings)))
        for line, (choice, number) in enumerate(zip(choices, numbers, strict=True), 1)
    ]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix != ".csv":
        yield from read_objects(path)
        return
    reader = csv.DictReader(f"{line}\n" for line in read_lines(path))
    with reading(path, csv.Error):
        require_distinct(path, reader.fieldnames or [])
        for row in reader:
            yield reader.line_num, row


def _field(path: Path, line: int, fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise UsageError(f"{path}, line {line}: no field {name!r}; it has {', '.join(map(repr, fields))}")
    return fields[name]


def _label(path: Path, line: int, value: Any, n_endings: int) -> int:
    text = str(value).strip()
    if text not in map(str, range(n_endings)):
        raise UsageError(f"{path}, line {line}: label {value!r} is none of 0 to {n_endings - 1}")
    return int(text)
