"""The rows of a file, by the names of columns: delimited text, JSON lines, parquet, or lines that follow a pattern."""

import contextlib
import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import TextError, UsageError, reading, require_file
from retable.corpora.json_lines import read_objects, require_distinct
from retable.corpora.text import SPLITS, read_lines

JSON_LINES = (".jsonl", ".json", ".ndjson")
NO_TEXTS, VOCABULARY = (".bin", ".npy", ".safetensors"), "tokenizer.json"  # inputs that no text comes from


class Row(NamedTuple):
    place: str  # in its file: "line 3", of the line that it begins in
    fields: dict[str, str | None]  # by column; None where there is no value


class Table(NamedTuple):
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
    r"""A file as a table; what it is, its name's ending says: .jsonl or .json, .parquet, else delimited text.

    columns: the names, where no header gives them.
    delimiter: between fields; a comma in .csv, a tab in all others.
    quotes: whether " round a field is no part of it, so that delimiters and line ends may stand inside; so by default
        in .csv alone. In GLUE's files a quote is a character like any other.
    pattern: a regular expression whose named groups are the columns of a line: `(?P<label>\w+):\w+ (?P<sentence>.*)`.
    skip_incomplete: leave out rows of delimited text that have more or fewer fields than there are columns, as the
        halves of a broken line have in GLUE's QQP.
    gold: a second file, each of whose lines is a row's value in one more column, `gold`.

    A byte-order mark is no part of the text. Raises UsageError for a file that is missing, that is not what its name
    says, or of whose rows one is incomplete.
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
        rows = ((number, row) for number, row in rows if row not in ([], [""]))  # a blank line is no row
        header = list(columns) if columns is not None else next(rows, (0, []))[1]
        require_distinct(path, header)
        table = Table(header, _delimited(path, header, rows, skip_incomplete))
    return table if gold is None else Table([*table.columns, "gold"], _with_gold(path, table.rows, Path(gold)))


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1 on."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise UsageError(f"task.form.encoding={encoding} is no encoding of text; write one such as latin-1") from None
    yield from enumerate(read_lines(path, encoding), 1)


def _plain(path: Path, lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split(delimiter)) for number, line in lines)


def _quoted(path: Path, lines: Iterable[tuple[int, str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    if len(delimiter) != 1:
        raise UsageError(
            f"task.form.delimiter={delimiter}: between quoted fields stands one letter; write a single one"
        )
    reader = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for row in reader:
            yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(
            f"{path}, line {begin}: {error}; where a quote is a character like any other, write "
            "task.form={quotes: false}"
        ) from None


def _delimited(
    path: Path, header: list[str], rows: Iterable[tuple[int, list[str]]], skip_incomplete: bool
) -> Iterator[Row]:
    for number, row in rows:
        if len(row) == len(header):
            yield Row(f"line {number}", dict(zip(header, row, strict=True)))
        elif not skip_incomplete:
            raise UsageError(f"{path}, line {number}: {len(row)} fields where there are {len(header)} columns")


def _matches(path: Path, pattern: str, encoding: str) -> Table:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"task.form.pattern={pattern} is no regular expression: {error}") from None

    def rows() -> Iterator[Row]:
        for number, line in _lines(path, encoding):
            if not line:
                continue
            match = expression.fullmatch(line)
            if match is None:
                raise UsageError(f"{path}, line {number} does not follow task.form.pattern={pattern}")
            yield Row(f"line {number}", match.groupdict())

    return Table([*expression.groupindex], rows())


def _objects(path: Path) -> Table:
    """JSON lines; the columns are those of the first."""

    def rows() -> Iterator[Row]:
        for number, found in read_objects(path):
            yield Row(f"line {number}", {key: _text(value) for key, value in found.items()})

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
                f"{gold} has {'more' if row is None else 'fewer'} lines than {path} has rows; give each one"
            )
        yield Row(row.place, {**row.fields, "gold": value})


def _text(value: Any) -> str | None:
    """A JSON value as text would have it: true and 1 as they are written, null as no value; a date in words."""
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


@contextlib.contextmanager
def placed(files: Iterable[Path]) -> Iterator[None]:
    """Have the refusal of a text in the block name the file, of these, and the line that the text comes from."""
    try:
        yield
    except TextError as error:
        texts = [path for path in files if path.is_file() and path.suffix not in NO_TEXTS and path.name != VOCABULARY]
        place = _place_of(error, texts)
        raise UsageError(f"{place}{error}") from None


def _place_of(error: TextError, files: Sequence[Path]) -> str:
    """Return the file and line that contain the part and most other words of the text.

    Of several it is one that ends with the part, as lines of columns do with a tag, and of these the first.
    """
    words, part = {*error.text.split()}, error.part.lower()
    found = [
        (-len(words.intersection(re.findall(r"[^\s,\"]+", line))), not line.lower().endswith(part), order,
         f"{path}, {place}: ")
        for order, path in enumerate(files)
        for place, line in _places(path)
        if part in line.lower()
    ]  # fmt: skip
    if found:
        return min(found, key=lambda each: each[:-1])[-1]
    return f"{' or '.join(map(str, files))}: " if 0 < len(files) <= len(SPLITS) else ""


def _places(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line, or row."""
    if path.suffix == ".parquet":
        yield from ((row.place, "\t".join(filter(None, row.fields.values()))) for row in _parquet(path).rows)
        return
    try:
        lines = [*read_lines(path)]
    except UsageError:  # it has another encoding, of which Latin-1 shows the letters of ASCII, in UTF-16 with NULs
        lines = [*read_lines(path, "latin-1")]
    yield from ((f"line {number}", line.replace("\0", "")) for number, line in enumerate(lines, 1))
