"""JSON, and files of JSON lines: a record a line."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retable.core.errors import UsageError
from retable.corpora.text import read_lines


def parse(text: str, path: Path, line: int | None = None) -> Any:
    """The value that a file, or a line of it, writes in JSON.

    UsageError, which names the place, for what is no JSON, is nested beyond Python's stack, or holds a number of more
    digits than it counts in, or half a character.
    """
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _distinct(pairs, path, line))
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # of "\ud800", half a character, there is no UTF-8
        return value
    except (ValueError, RecursionError) as error:
        where, said = line, str(error)
        if isinstance(error, json.JSONDecodeError):
            where, said = error.lineno if line is None else line, f"{error.msg} at column {error.colno}"
        place = str(path) if where is None else f"{path}, line {where}"
        raise UsageError(f"{place}: no JSON, {said}") from None


def _distinct(pairs: list[tuple[str, Any]], path: Path, line: int | None) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        require_distinct(path if line is None else f"{path}, line {line}", [name for name, _ in pairs])
    return found


def require_distinct(place: object, names: Sequence[str]) -> None:
    """Raise UsageError for a name of a column or of a key that occurs twice: one value would hide the other."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{place}: {twice[0]!r} occurs twice among {', '.join(map(repr, names))}; rename one")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file, a line each, with the numbers of their lines; blank lines are passed over.

    UsageError for a missing file, and a line that is no object. A byte-order mark is no part of the text.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            found = parse(line, path, number)
            if not isinstance(found, dict):
                raise UsageError(f'{path}, line {number}: no JSON object; write {{"name": value, …}} in each line')
            yield number, found


def read_records(path: Path, *keys: str, texts: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """The records of a file, in their order; blank lines are passed over.

    Raises UsageError for a missing file, a line that is no JSON object, one that lacks any of `keys` or `texts`, or one
    where any of `texts` is no text; and for a file without records.
    """
    number = 0
    for number, record in read_objects(path):
        if missing := [key for key in (*keys, *texts) if key not in record]:
            raise UsageError(f"{path}, line {number}: no {', '.join(map(repr, missing))} among {', '.join(record)}")
        if wrong := [key for key in texts if not isinstance(record[key], str)]:
            raise UsageError(f"{path}, line {number}: {wrong[0]!r} is no text")
        yield record
    if not number:
        raise UsageError(f"{path} holds no records; a line is one JSON object")
