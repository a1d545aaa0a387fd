"""Read JSON, and JSON lines: files with one record per line."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from retable.core.errors import UsageError
from retable.corpora.text import read_lines


def parse(text: str, path: Path, line: int | None = None) -> Any:
    """Parse the JSON of a file, or of one line of a file.

    Raises: UsageError: the text is not JSON, is nested too deeply for Python, or contains a repeated key, half of a
        surrogate pair, or an integer with more digits than Python allows. The message names the file and the line.
    """
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: _distinct(pairs, path, line))
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half of a surrogate pair, such as "\ud800"
        return value
    except (ValueError, RecursionError) as error:
        where, cause = line, str(error)
        if isinstance(error, json.JSONDecodeError):
            where, cause = error.lineno if line is None else line, f"{error.msg} at column {error.colno}"
        place = str(path) if where is None else f"{path}, line {where}"
        raise UsageError(f"{place}: not JSON, {cause}") from None


def _distinct(pairs: list[tuple[str, Any]], path: Path, line: int | None) -> dict[str, Any]:
    if len(result := dict(pairs)) < len(pairs):
        require_distinct(path if line is None else f"{path}, line {line}", [name for name, _ in pairs])
    return result


def require_distinct(place: object, names: Sequence[str]) -> None:
    """Check that names of columns or keys are distinct: if two values had the same name, one value would be lost.

    Raises: UsageError: a name occurs twice.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{place}: {twice[0]!r} occurs twice among {', '.join(map(repr, names))}; rename one of them")


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON lines file with their line numbers; blank lines are skipped.

    Raises: UsageError: the file is missing, or a line is not an object.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            record = parse(line, path, number)
            if not isinstance(record, dict):
                raise UsageError(f'{path}, line {number}: not a JSON object; write {{"name": value, …}} in each line')
            yield number, record


def read_records(path: Path, *keys: str, texts: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the records of a JSON lines file in order; blank lines are skipped.

    Raises: UsageError: the file is missing or has no records, a line is not an object, a record lacks one of `keys` or
        `texts`, or a field of `texts` is not a string.
    """
    number = 0
    for number, record in read_objects(path):
        if missing := [key for key in (*keys, *texts) if key not in record]:
            raise UsageError(
                f"{path}, line {number}: {', '.join(map(repr, missing))} is missing; the keys are {', '.join(record)}"
            )
        if wrong := [key for key in texts if not isinstance(record[key], str)]:
            raise UsageError(f"{path}, line {number}: {wrong[0]!r} must be a string")
        yield record
    if not number:
        raise UsageError(f"{path} has no records; write one JSON object per line")
