"""Read multiple-choice examples: a context with several possible endings, as in SWAG, HellaSwag and PIQA."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError, reading
from retable.corpora.json_lines import read_objects, require_distinct
from retable.corpora.text import read_lines


class Choice(NamedTuple):
    """A context with endings to choose from."""

    context: str
    endings: list[str]
    label: int | None  # index of the correct ending; None in a test set without labels


def read_choices(
    path: Path, context: str, endings: str | Sequence[str], label: str | None = None, labels: Path | None = None
) -> list[Choice]:
    """Read the examples of a JSON lines file, or of a .csv file with a header.

    SWAG (.csv): context=startphrase, endings=[ending0, ending1, ending2, ending3], label=label. HellaSwag: context=ctx,
    endings=endings, label=label. PIQA: context=goal, endings=[sol1, sol2] and `labels`.

    Args:
        context: name of the field with the context.
        endings: name of the field with the list of endings, or one field name per ending.
        label: name of the field with the number of the correct ending, counted from 0.
        labels: file whose line n contains the number of the correct ending of example n, if the examples have no field
            for this number. A test set may have neither the field nor the file.

    Raises: UsageError: the file is missing or has no examples, a line is malformed, or a label is missing or invalid.
    """
    choices = []
    for line, fields in _rows(path):
        values = [_field(path, line, fields, name) for name in ([endings] if isinstance(endings, str) else endings)]
        options = values[0] if isinstance(endings, str) else values
        beginning = _field(path, line, fields, context)
        if not isinstance(beginning, str):
            raise UsageError(f"{path}, line {line}: field {context!r} must be a string")
        if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
            raise UsageError(f"{path}, line {line}: {endings!r} must be two or more strings")
        number = None if label is None else _label(path, line, _field(path, line, fields, label), len(options))
        choices.append(Choice(beginning, options, number))
    if not choices:
        raise UsageError(f"{path} has no examples")
    return choices if labels is None else _labelled(path, choices, labels)


def _labelled(path: Path, choices: list[Choice], labels: Path) -> list[Choice]:
    numbers = list(read_lines(labels))
    if len(numbers) != len(choices):
        raise UsageError(f"{labels} has {len(numbers)} labels, but {path} has {len(choices)} examples")
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
        raise UsageError(f"{path}, line {line}: no field {name!r}; write one of {', '.join(map(repr, fields))}")
    return fields[name]


def _label(path: Path, line: int, value: Any, n_endings: int) -> int:
    text = str(value).strip()
    if text not in map(str, range(n_endings)):
        raise UsageError(f"{path}, line {line}: label {value!r} must be a number from 0 to {n_endings - 1}")
    return int(text)
