"""Files of JSON lines: a record a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retable.corpora.text import read_lines
from retable.errors import UsageError


def read_records(path: Path, *keys: str) -> Iterator[dict[str, Any]]:
    """The records of a file, in their order; blank lines are passed over.

    Raises UsageError for a missing file, a line that is no JSON object, or one that lacks any of `keys`.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number}: {error.msg}; a line is one JSON object") from None
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {number}: {type(record).__name__}; a line is one JSON object")
        if missing := [key for key in keys if key not in record]:
            raise UsageError(f"{path}, line {number}: no {', '.join(map(repr, missing))} among {', '.join(record)}")
        yield record
