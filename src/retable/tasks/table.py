"""Read tables with named columns from files: delimited text, JSON lines, parquet, or lines that match a pattern."""

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
NO_TEXTS, VOCABULARY = (".bin", ".npy", ".safetensors"), "tokenizer.json"  # of files without texts: suffixes, name


class Row(NamedTuple):
    """A row of a table."""

    place: str  # location of the row in its file: the line where it begins, such as "line 3"
    fields: dict[str, str | None]  # the value of each column, or None if the value is missing


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
    r"""Read a file as a table.

    The file's suffix determines the format: JSON lines, parquet or, for all other suffixes, delimited text. A
    byte-order mark is removed.

    Args:
        columns: names of the columns, for a file without a header.
        delimiter: separator of fields; by default, a comma in .csv files, and a tab in all other files.
        quotes: whether a field may be enclosed in ", and may then contain delimiters and line ends; by default, this is
            True for .csv files only. In GLUE's files, quotes are ordinary characters.
        pattern: a regular expression that each line must match; its named groups are the columns. Example:
            `(?P<label>\w+):\w+ (?P<sentence>.*)`.
        skip_incomplete: whether to skip rows of delimited text that have the wrong number of fields, such as the two
            halves of a broken line in GLUE's QQP.
        gold: a second file, whose i-th line is the value of the i-th row in an additional column `gold`.

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
    """Read several files, each with the sentences of one label, as a table with the columns `sentence` and `label`.

    Each file has one sentence per line; blank lines are skipped.

    Raises: UsageError: a file is missing, or not in `encoding`.
    """

    def rows() -> Iterator[Row]:
        for label, path in files.items():
            for number, line in _lines(path, encoding):
                if line.strip():
                    yield Row(f"line {number} of {path.name}", {"sentence": line, "label": label})

    return Table(["sentence", "label"], rows())


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, counted from 1."""
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
    """Read JSON lines as a table; the keys of the first object are the columns."""

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
    """Convert a value to the text that JSON would contain; strings and None (null) are returned unchanged.

    A value that JSON does not support, such as a date, is written as a JSON string.
    """
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


@contextlib.contextmanager
def placed(files: Iterable[Path]) -> Iterator[None]:
    """Convert a TextError in the `with` block to a UsageError whose message starts with the text's file and line.

    Args:
        files: the files that may contain the text.
    """
    try:
        yield
    except TextError as error:
        texts = [path for path in files if path.is_file() and path.suffix not in NO_TEXTS and path.name != VOCABULARY]
        place = _place_of(error, texts)
        raise UsageError(f"{place}{error}") from None


def _place_of(error: TextError, files: Sequence[Path]) -> str:
    """Find the line, in any of `files`, that most likely contains the text with the error.

    The line must contain the wrong string, `error.part`; among such lines, the line with the most words in common with
    `error.text` is chosen. Among equally good lines, a line that ends with the wrong string is preferred, because in
    files with columns, a line ends with the tag. If several lines remain, the first of these lines is returned.

    Returns: the file and the line number, as the beginning of an error message.
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
    """Yield the location and the text of each line or row of a file."""
    if path.suffix == ".parquet":
        yield from ((row.place, "\t".join(filter(None, row.fields.values()))) for row in _parquet(path).rows)
        return
    try:
        lines = [*read_lines(path)]
    except UsageError:  # not UTF-8; Latin-1 reads ASCII letters correctly, and UTF-16 letters with NULs in between
        lines = [*read_lines(path, "latin-1")]
    yield from ((f"line {number}", line.replace("\0", "")) for number, line in enumerate(lines, 1))
