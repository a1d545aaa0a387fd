"""Read files as tables with named columns: delimited text, JSON lines, parquet, or lines that match a pattern."""

import contextlib
import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import TextError, UsageError, reading, require_file
from retable.corpora.json_lines import read_objects, require_distinct
from retable.corpora.text import SPLITS, read_lines

JSON_LINES = (".jsonl", ".json", ".ndjson")
NO_TEXTS, VOCABULARY = (".bin", ".npy", ".safetensors"), "tokenizer.json"  # files without texts


class Row(NamedTuple):
    """A row of a table."""

    place: str  # place in its file, such as "line 3", the line where it begins
    fields: dict[str, str | None]  # by column; None for a missing value


class Table(NamedTuple):
    """The columns and rows of a file."""

    columns: list[str]
    rows: Iterator[Row]


def read_table(
    path: Path,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    quotes: bool | None = None,
    pattern: str | None = None,
    encoding: str = "utf-8",
    skip_incomplete: bool = False,
    gold: str | None = None,
) -> Table:
    r"""Read a file as a table; the suffix gives the format: .jsonl or .json, .parquet, otherwise delimited text.

    A byte-order mark is removed.

    Args:
        columns: names of the columns, for a file without a header.
        delimiter: between fields; by default a comma in .csv and a tab in others.
        quotes: whether " encloses fields that may contain delimiters and line ends; by default only in .csv. In GLUE's
            files quotes are ordinary characters.
        pattern: a regular expression for lines, whose named groups are the columns, such as
            `(?P<label>\w+):\w+ (?P<sentence>.*)`.
        skip_incomplete: skip rows of delimited text with the wrong number of fields, such as the halves of broken lines
            in GLUE's QQP.
        gold: a second file with one line per row, the values of a further column `gold`.

    Raises: UsageError: a file is missing or malformed, or a row is incomplete.
    """
    if pattern is not None:
        table = _matches(path, pattern, encoding)
    elif path.suffix in JSON_LINES:
        table = _objects(path)
    elif path.suffix == ".parquet":
        table = _parquet(path)
    else:
        is_csv = path.suffix == ".csv"
        split = _quoted if (is_csv if quotes is None else quotes) else _plain
        rows = split(path, _lines(path, encoding), delimiter or ("," if is_csv else "\t"))
        rows = ((number, row) for number, row in rows if row not in ([], [""]))  # skips blank lines
        header = list(columns) if columns is not None else next(rows, (0, []))[1]
        require_distinct(path, header)
        table = Table(header, _delimited(path, header, rows, skip_incomplete))
    return table if gold is None else Table([*table.columns, "gold"], _with_gold(path, table.rows, Path(gold)))


def read_by_class(files: Mapping[str, Path], encoding: str = "utf-8") -> Table:
    """Read files with one sentence per line, one file per label, as the columns `sentence` and `label`.

    Blank lines are skipped. Raises: UsageError: a file is missing, or not in `encoding`.
    """

    def rows() -> Iterator[Row]:
        for label, path in files.items():
            for number, line in _lines(path, encoding):
                if line.strip():
                    yield Row(f"line {number} of {path.name}", {"sentence": line, "label": label})

    return Table(["sentence", "label"], rows())


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers, from 1."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise UsageError(f"task.form.encoding={encoding} is not an encoding; write, for example, latin-1") from None
    yield from enumerate(read_lines(path, encoding), 1)


def _plain(path: Path, lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split(delimiter)) for number, line in lines)


def _quoted(path: Path, lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    if len(delimiter) != 1:
        raise UsageError(f"task.form.delimiter={delimiter} is too long for quoted fields; write a single character")
    reader = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for row in reader:
            yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {begin}: {error}; if quotes are ordinary characters here, write task.form={{quotes: false}}"
        ) from None


def _delimited(
    path: Path, header: list[str], rows: Iterable[tuple[int, list[str]]], skip_incomplete: bool
) -> Iterator[Row]:
    for number, row in rows:
        if len(row) == len(header):
            yield Row(f"line {number}", dict(zip(header, row, strict=True)))
        elif not skip_incomplete:
            raise UsageError(f"{path}, line {number}: expects {len(header)} fields but got {len(row)}")


def _matches(path: Path, pattern: str, encoding: str) -> Table:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"task.form.pattern={pattern} is not a regular expression: {error}") from None

    def rows() -> Iterator[Row]:
        for number, line in _lines(path, encoding):
            if not line:
                continue
            match = expression.fullmatch(line)
            if match is None:
                raise UsageError(f"{path}, line {number} does not match task.form.pattern={pattern}")
            yield Row(f"line {number}", match.groupdict())

    return Table([*expression.groupindex], rows())


def _objects(path: Path) -> Table:
    """Read JSON lines; the first object sets the columns."""

    def rows() -> Iterator[Row]:
        for number, fields in read_objects(path):
            yield Row(f"line {number}", {key: _text(value) for key, value in fields.items()})

    all_rows = rows()
    first = next(all_rows, None)
    return Table([], iter(())) if first is None else Table([*first.fields], chain([first], all_rows))


def _parquet(path: Path) -> Table:
    import pyarrow.parquet

    require_file(path)
    damage = pyarrow.ArrowException, OSError, ValueError
    with reading(path, *damage):
        file = pyarrow.parquet.ParquetFile(path)

    def rows() -> Iterator[Row]:
        number = 0
        with reading(path, *damage):
            for batch in file.iter_batches():
                for number, fields in enumerate(batch.to_pylist(), number + 1):  # noqa: B020
                    yield Row(f"row {number}", {key: _text(value) for key, value in fields.items()})

    names = list(file.schema_arrow.names)
    require_distinct(path, names)
    return Table(names, rows())


def _with_gold(path: Path, rows: Iterable[Row], gold: Path) -> Iterator[Row]:
    for row, value in zip_longest(rows, read_lines(gold)):
        if row is None or value is None:
            raise UsageError(
                f"{gold} has {'more' if row is None else 'fewer'} lines than {path} has rows; write one line per row"
            )
        yield Row(row.place, {**row.fields, "gold": value})


def _text(value: Any) -> str | None:
    """Return a JSON value as text: true and 1 as JSON, null as no value, and dates in words."""
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


@contextlib.contextmanager
def placed(files: Iterable[Path]) -> Iterator[None]:
    """Add file and line to the message of a TextError in the block; `files` are those the text may come from.

    Raises: UsageError, with the file and line.
    """
    try:
        yield
    except TextError as error:
        texts = [path for path in files if path.is_file() and path.suffix not in NO_TEXTS and path.name != VOCABULARY]
        place = _place_of(error, texts)
        raise UsageError(f"{place}{error}") from None


def _place_of(error: TextError, files: Sequence[Path]) -> str:
    """Return the file and line that contain the part and most other words of the text.

    Lines that end with the part come first, as tags end lines of columns; ties are broken by order.
    """
    words, part = {*error.text.split()}, error.part.lower()
    matches = [
        (-len(words.intersection(re.findall(r"[^\s,\"]+", line))), not line.lower().endswith(part), order,
         f"{path}, {place}: ")
        for order, path in enumerate(files)
        for place, line in _places(path)
        if part in line.lower()
    ]  # fmt: skip
    if matches:
        return min(matches, key=lambda each: each[:-1])[-1]
    return f"{' or '.join(map(str, files))}: " if 0 < len(files) <= len(SPLITS) else ""


def _places(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line or row."""
    if path.suffix == ".parquet":
        yield from ((row.place, "\t".join(filter(None, row.fields.values()))) for row in _parquet(path).rows)
        return
    try:
        lines = [*read_lines(path)]
    except UsageError:  # another encoding; Latin-1 keeps ASCII letters, in UTF-16 with NULs
        lines = [*read_lines(path, "latin-1")]
    yield from ((f"line {number}", line.replace("\0", "")) for number, line in enumerate(lines, 1))
