"""Build tables from specifications, such as those in `conf/table/`.

A specification selects averaged results (`results.aggregate`) for a table, and defines its rows and columns. There is
one panel per corpus.

    title: Tagging
    where: {task: tagging}             # conditions on columns of the results: a value, a list of values, or a pattern
                                       #   with *; {split: {having: equal}} selects the splits that have the metric
                                       #   `equal`, and {split: {lacking: equal}} the splits without it
    order: [test/f1, test/accuracy]    # rows are sorted from worst to best by the first of these metrics that a row
                                       #   has; with -metric, lower is better; `mean` is the mean of all numbers
    digits: 2                          # digits after the decimal point (an interval has one)
    scale: 100                         # all numbers are multiplied by this factor
    columns:
    - runs                             # a column about the whole row: context, runs, flops or note; to set its
                                       #   title, write {Decoding: context}
    - Validation: {F1: validation/f1}  # a group of columns: for each, a title and a metric, written as metric,
    - Test:                            #   split/metric or task/split/metric; * matches any name
        F1: [test/f1, interval, published, verdict]  # further columns next to the mean of this metric
    notes: [What the numbers are., spread, bold]     # `spread` and `bold` insert the usual notes

Optional keys:

    lead: [Test F1, Runs]              # the columns that are visible at first, by importance; at most 7 with the first
                                       #   column; by default `markup.leading` chooses them
    others: true                       # only rows that are in no other table
    prefer: {split: [test, validation]}              # for each task, only the first of these splits that it has
    row: Section                       # title of the first column
    rows:                              # blocks of rows; by default [{each: system}]
    - {each: split, metric: accuracy, last: total}   # the row `total` is last, below a rule
    - {each: split, among: [total], metric: accuracy_mul, label: "{split}, by 3CosMul", apart: true}
    oracle: Bayes-optimal              # label of the oracle's row; {label: …, task: ""} also selects its numbers
    published: behind                  # systems that were not run come last, below a rule
    names: {^f1$: F1}                  # display names of values, except systems: regular expressions
    columns:
    - {each: [task, metric], "{task}": {"{metric}": [value, interval]}}   # repeated for each existing value
    - bits: {of: test/bits_per_byte, show: [published], digits: 4, bold: false, judged: true}
    - Questions: [seen, count]         # `count` shows the lowest and the highest value in the row
    notes:
    - {text: "Without test labels: {task}.", when: {split: validation}}

`value` shows the mean. `number` shows the mean, or the published number if there is no mean. A field with
`judged: true` is empty if there is no published number. Instead of `rows` and `columns`, a specification may have
`_target_`: the name of a function that converts the averaged results to a `markup.Table`.

A specification with a `panel` instead of `where` is for rows that another module of this package computes. The keys
`title`, `lead`, `notes` and `names` have the same meaning as in a specification with `where`, but `names` applies to
all texts. The note `own` inserts the lines of the column `_notes`. Each field is a Python format string with the
columns of a row. A field is empty if one of its numbers is NaN, and {share:.1%} is shown without a percent sign. The
CSV leaves out columns whose names begin with an underscore.

    title: Gradients, {corpus}
    each: corpus                       # one table per value of this column
    panel: {Corpus: "{corpus}"}        # the kind of the panels, and the name of each; rows with an empty name are left
                                       #   out
    rows: [corpus, task]               # rows with equal values in these columns share one line; by default each row has
                                       #   a separate line
    order: [corpus, mean]              # lines are sorted by these columns
    apart: {varied: length}            # rows with this value have a rule above them
    columns:
    - {System: "{system}", PPL/word: "{mean:.2f} ± {std:.2f} ← {runs}"}  # the spread follows ±, the cells of the
                                                                         #   number follow ←
    - Gain: "{_bold}{difference:+.1%}" # bold if the column `_bold` is true
    - {each: layer, Share of layer: {"{layer}": "{share:.3f}"}}          # repeated for each value of the column
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby, product
from math import inf, isnan
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from retable.core.errors import UsageError, closest
from retable.core.settings import resolve
from retable.reporting.coverage import coverage_note
from retable.reporting.fields import (
    BOLD,
    SPREAD,
    filled_table,
    interval_value,
    mean_value,
    number_value,
    published_values,
    runs_value,
    span,
    system_value,
)
from retable.reporting.markup import Column, Row, Table, Value, markdown_table
from retable.reporting.names import display_name
from retable.reporting.overlap import overlap_note
from retable.reporting.results import CELL, ORACLE
from retable.reporting.spreadsheets import write_csv

Specification = Mapping[str, Any]
Facts = Mapping[str, str]  # Values by column of `results.aggregate`, as in {split: test, metric: f1}.
Cell = Mapping[str, Any]  # A row of `results.aggregate`.

KEYS = ("title", "where", "columns", "lead", "notes", "order", "digits", "scale", "others", "prefer", "row", "rows",
        "oracle", "published", "names", "_target_")  # fmt: skip
ROW_KEYS = ("title", "each", "panel", "rows", "order", "columns", "lead", "notes", "names", "apart")
WHOLE = {"context": "Context", "runs": "Runs", "flops": "FLOPs", "note": "Note"}  # columns about a whole row
TEXTS = ("context", "note", "verdict")
EXTRA_COLUMNS = {"interval": "95 % interval", "published": "published", "verdict": "verdict"}
FACTS = (*CELL, "protocol", "verdict", "source", "note", "signature")  # columns that conditions may name
SHOWN = ("value", "number", "count", *EXTRA_COLUMNS)
SETTINGS = {"digits": 2, "scale": 1, "bold": True, "judged": False}
MEASURE = ("of", "show", *SETTINGS)
SYSTEMS = ("system", "other_system", "baseline", "elmo")  # System keys in these columns are shown as display names.
CELLS, BOLDLY = " ← ", "{_bold}"  # Markers in a template: CELLS follows a number, BOLDLY precedes a number.
NOTES = {"spread": SPREAD, "bold": BOLD}


class Shown(NamedTuple):
    """A column of a table: the shown quantity, and facts that select a result in each row."""

    what: str  # one of SHOWN or WHOLE
    facts: Facts
    digits: int = 0
    scale: float = 1
    bold: bool = True
    judged: bool = False


def write_tables(frame: pd.DataFrame, specifications: Mapping[str, Specification], folder: Path) -> list[Table]:
    """Write `<table>.csv` and `<table>.md` of each table that has measured rows.

    Equal frames give byte-identical files. A row of the oracle is omitted if no system has its corpus, task and metric.
    If `oracle` selects the oracle's numbers, or if the specification has a `_target_`, the row is omitted only if no
    system has its corpus. Specifications with a `panel` are skipped; see `rows_tables`.

    Args:
        frame: averaged results, from `results.aggregate`.
        specifications: specifications by table name.
        folder: output folder, created if missing.

    Raises: UsageError: a specification is invalid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specifications = {name: spec for name, spec in specifications.items() if "panel" not in spec}
    for name, spec in specifications.items():
        check(name, spec)
    own = {name: _matches(frame, spec["where"]) for name, spec in specifications.items()}
    named = [rows for name, rows in own.items() if not specifications[name].get("others")]
    tables = []
    for name, spec in specifications.items():
        rows = own[name] & ~np.logical_or.reduce(named) if spec.get("others") else own[name]
        part = frame[rows]
        systems = part[part["system"] != ORACLE]
        is_placed = "_target_" in spec or isinstance(spec.get("oracle"), Mapping)
        of = ["corpus"] if is_placed else ["corpus", "task", "metric"]
        part = part[pd.MultiIndex.from_frame(part[of]).isin(pd.MultiIndex.from_frame(systems[of]))]
        if systems["n"].any():
            tables.append(write_table(specified_table(name, spec, part), part, folder))
    return tables


def write_table(table: Table, frame: pd.DataFrame, folder: Path) -> Table:
    """Write the rows `frame` as `<table.name>.csv` and the table as `<table.name>.md`, and return the table unchanged.

    The CSV omits columns whose names start with `_`, and the column `signature` if it is empty. Numbers in the CSV have
    six significant digits.

    Args:
        frame: the rows that the table shows.
        folder: an existing folder; existing files with these names are overwritten.
    """
    frame = frame.drop(columns=[name for name in frame if name.startswith("_")])
    if "signature" in frame and not frame["signature"].any():
        frame = frame.drop(columns="signature")
    # six digits, because further digits depend on the order of summation, which differs between machines
    write_csv(frame, folder / f"{table.name}.csv", float_format="%.6g")
    (folder / f"{table.name}.md").write_text(markdown_table(table), encoding="utf-8")
    return table


def check(name: str, spec: Specification) -> None:
    """Raise UsageError if a specification has an unknown key or an invalid value, or lacks a required key."""
    for key in spec:
        if key not in KEYS:
            raise UsageError(f"table {name} has no key {key!r}; {closest(key, KEYS)}")
    needed = ["where"] if "_target_" in spec else ["title", "where", "columns"]
    if missing := [key for key in needed if key not in spec]:
        raise UsageError(
            f"table {name} has no {', '.join(missing)}; see src/retable/reporting/tables.py for an example"
        )
    for column in (column for column in spec.get("columns", ()) if isinstance(column, str)):
        if column not in WHOLE:
            raise UsageError(f"table {name}: unknown column {column!r} of a whole row; {closest(column, WHOLE)}")
    for key in (key for key in _named_columns(spec) if key not in FACTS):
        raise UsageError(f"table {name}: unknown column {key!r} of the results; {closest(key, FACTS)}")
    for column, condition in (item for where in _conditions(spec) for item in where.items()):
        by_metric = isinstance(condition, Mapping) and [*condition] in (["having"], ["lacking"])
        if not (by_metric or isinstance(condition, str | list)):
            raise UsageError(
                f"table {name}: {column}: {condition} is not a condition; write a value, a pattern, a list of them, or "
                "{having: METRIC} or {lacking: METRIC}"
            )
    for key in ("digits", "scale"):
        if not isinstance(spec.get(key, 0), int | float):
            raise UsageError(f"table {name}: {key}: {spec[key]} is not a number; write {key}: {SETTINGS[key]}")


def _conditions(spec: Specification) -> Iterator[Mapping[str, Any]]:
    """Yield all conditions on rows in a specification, from `where` and from the notes."""
    yield from _alternatives(spec["where"])
    for note in spec.get("notes", ()):
        if isinstance(note, Mapping):
            yield from _alternatives(note.get("when", {}))


def _named_columns(spec: Specification) -> Iterator[str]:
    """Yield the columns of `results.aggregate` that a specification names."""
    for where in _conditions(spec):
        yield from where
    yield from spec.get("prefer", {})
    for block in (*spec.get("rows", ()), *spec.get("columns", ())):
        if isinstance(block, Mapping) and "each" in block:
            yield from [block["each"]] if isinstance(block["each"], str) else block["each"]


def specified_table(name: str, spec: Specification, frame: pd.DataFrame) -> Table:
    """Build the table of these averaged results from its specification."""
    if "_target_" in spec:
        try:
            make = resolve(spec["_target_"])
        except UsageError as error:
            raise UsageError(f"table {name}: {error}") from error
        return make(frame)
    return _Specified(name, spec, frame).table()


def rows_tables(name: str, spec: Specification, frame: pd.DataFrame) -> Iterator[tuple[Table, pd.DataFrame]]:
    """Build tables of computed rows from a specification with a `panel`; yield each table with its rows.

    Args:
        name: name of the table, for its files and for messages.
        spec: has keys from ROW_KEYS. If `each` names a column, there is one table per value of this column, named
            `<name>-<value>`; otherwise there is one table.
        frame: the rows, with the columns that `spec` names. If `frame` has no rows, nothing is yielded.

    Raises: UsageError: `spec` has an unknown key, or names a column that the rows do not have.
    """
    if unknown := next((key for key in spec if key not in ROW_KEYS), None):
        raise UsageError(f"table {name} has no key {unknown!r}; {closest(unknown, ROW_KEYS)}")
    if frame.empty:
        return
    for value, part in frame.groupby(spec["each"], sort=False) if "each" in spec else [("", frame)]:
        yield _Rows(f"{name}-{value}" if "each" in spec else name, spec, part).table(), part


class _Specified:
    """A table of averaged results, built from a specification."""

    def __init__(self, name: str, spec: Specification, frame: pd.DataFrame):
        for column, values in spec.get("prefer", {}).items():
            frame = _preferred(frame, column, values)
        self._name, self._specification, self._frame = name, spec, frame
        oracle = spec.get("oracle", "true distribution")
        self._oracle: Facts = {"label": oracle} if isinstance(oracle, str) else oracle

    def table(self) -> Table:
        columns = [*self._columns()]
        heads = [Column(self._specification.get("row", "System"), numeric=False), *(column for column, _ in columns)]
        corpora = sorted(self._frame.groupby("corpus"), key=lambda item: (not item[1]["n"].any(), item[0]))
        panels = {str(corpus): [*self._rows(part, [shown for _, shown in columns])] for corpus, part in corpora}
        return filled_table(
            self._name, self._specification["title"], heads, panels, [*self._notes()], self._lead(heads)
        )

    def _lead(self, columns: list[Column]) -> tuple[str, ...]:
        names = {column.name for column in columns}
        for name in (lead := tuple(self._specification.get("lead", ()))):
            if name not in names:
                raise UsageError(f"table {self._name}, lead: unknown column {name!r}; {closest(name, names)}")
        return lead

    def _columns(self) -> Iterator[tuple[Column, Shown]]:
        for entry in self._specification["columns"]:
            entry = {WHOLE[entry]: entry} if isinstance(entry, str) else entry
            heads = {key: inner for key, inner in entry.items() if key != "each"}
            for facts in self._combinations(self._frame, entry["each"]) if "each" in entry else [{}]:
                for head, inner in heads.items():
                    is_group = isinstance(inner, dict) and not set(inner) <= set(MEASURE)
                    group = self._filled(head, facts) if is_group else ""
                    for title, measure in (inner if is_group else {head: inner}).items():
                        for shown in self._measured(measure, facts):
                            own = EXTRA_COLUMNS.get(shown.what) or self._filled(title, facts)
                            yield Column(own, group, shown.what not in TEXTS, facts.get("system", "")), shown

    def _measured(self, entry: Any, facts: Facts) -> Iterator[Shown]:
        """Yield the columns of an entry: those of a metric, or a column about the whole row."""
        if isinstance(entry, str) and entry in WHOLE:
            yield Shown(entry, {})
            return
        if not isinstance(entry, dict):
            listed = [entry] if isinstance(entry, str) else [*entry]
            of = "" if listed[0] in SHOWN else listed.pop(0)
            entry = {"of": of, "show": listed if {"value", "number", "count"} & {*listed} else ["value", *listed]}
        settings = {key: entry.get(key, self._specification.get(key, usual)) for key, usual in SETTINGS.items()}
        of = {**facts, **_facts(entry.get("of", "").format_map(facts))}
        for quantity in entry.get("show", ["value"]):
            if quantity not in SHOWN:
                raise UsageError(f"table {self._name}: unknown quantity {quantity!r}; {closest(quantity, SHOWN)}")
            yield Shown(quantity, of, **settings | ({"digits": 1} if quantity == "interval" else {}))

    def _rows(self, part: pd.DataFrame, columns: Sequence[Shown]) -> Iterator[Row]:
        cells = _Cells(part)
        for block in self._specification.get("rows", [{"each": "system"}]):
            if block.get("each") == "system":
                yield from self._systems(cells, columns)
                continue
            fixed = {key: value for key, value in block.items() if key in CELL}
            rows = self._combinations(part[_matches(part, fixed)], block["each"]) if "each" in block else [{}]
            rows = [facts for facts in rows if {*facts.values()} <= {*block.get("among", facts.values())}]
            rows.sort(key=lambda facts: block.get("last") in facts.values())
            for place, facts in enumerate(rows):
                label = self._filled(block.get("label", f"{{{block.get('each')}}}"), facts)
                values = [self._value(cells, each, {**facts, **fixed, **each.facts}) for each in columns]
                apart = block.get("last") in facts.values() or (block.get("apart", False) and place == 0)
                yield Row([Value(label), *values], apart)

    def _systems(self, cells: "_Cells", columns: Sequence[Shown]) -> Iterator[Row]:
        """Yield a row per system, from worst to best; the oracle is last."""

        def block_of(system: str) -> int:
            was_run = any(cell["n"] for cell in cells.of({"system": system}))
            return 2 if system == ORACLE else self._specification.get("published") == "behind" and not was_run

        blocks = groupby(sorted(_ranked(cells, self._specification.get("order", ())), key=block_of), block_of)
        for block, systems in blocks:
            for place, system in enumerate(systems):
                own = {key: value for key, value in self._oracle.items() if key in CELL and system == ORACLE}
                values = [self._value(cells, each, {**each.facts, "system": system, **own}) for each in columns]
                label = Value(f"{self._oracle['label']} (oracle)") if system == ORACLE else system_value(system)
                yield Row([label, *values], apart=block > 0 and place == 0)

    def _value(self, cells: "_Cells", shown: Shown, facts: Facts) -> Value:
        matches = cells.of(facts)
        if shown.what in FROM_ALL:
            return FROM_ALL[shown.what](matches)
        if shown.what == "note":
            return Value(self._note(matches))
        if len(matches) > 1:
            which = " and ".join("/".join(str(cell[name]) for name in CELL) for cell in matches[:2])
            raise UsageError(f"table {self._name}: a field matches {which}; name the split or task of its column")
        cell = matches[0] if matches else None
        if shown.judged and cell is not None and isnan(cell["published"]):
            return Value("")
        match shown.what:
            case "interval":
                return interval_value(cell, shown.digits, shown.scale)
            case "published" | "verdict":
                return published_values(cell, shown.digits, shown.scale)[shown.what == "verdict"]
            case "number":
                return number_value(cell, shown.digits, shown.scale)
        return mean_value(cell, shown.digits, shown.scale, shown.bold)

    def _note(self, cells: list[Cell]) -> str:
        """Join the notes of a row.

        The notes of a task come from one of its results with notes, if possible from a result with a published number.
        A note begins with the names of its tasks, unless it applies to all tasks with a published number. If there are
        no published numbers, a note without names must apply to all tasks with notes.
        """
        ordered = sorted(cells, key=lambda cell: isnan(cell["published"]))
        first = {self._named(cell["task"]): cell for cell in reversed(ordered) if cell["note"]}
        every = {self._named(cell["task"]) for cell in cells if not isnan(cell["published"])} or {*first}
        tasks: dict[str, list[str]] = defaultdict(list)
        for task, cell in sorted(first.items()):
            for note in cell["note"].split("; "):
                tasks[note].append(task)
        return "; ".join(note if every <= {*of} else f"{', '.join(of)}: {note}" for note, of in tasks.items())

    def _combinations(self, frame: pd.DataFrame, each: str | Sequence[str]) -> list[Facts]:
        """Return the existing combinations of values of some columns, sorted.

        Systems are sorted from worst to best if the specification has an `order`.
        """
        names = [each] if isinstance(each, str) else [*each]
        tuples = sorted(set(frame[names].itertuples(index=False, name=None)))
        if names == ["system"] and "order" in self._specification:
            tuples = [(system,) for system in _ranked(_Cells(frame), self._specification["order"])]
        return [dict(zip(names, values, strict=True)) for values in tuples]

    def _filled(self, text: str, facts: Facts) -> str:
        try:
            return text.format_map({name: self._display(name, value) for name, value in facts.items()})
        except KeyError as error:
            available = f"write one of {', '.join(facts)}" if facts else "add each: with its columns"
            raise UsageError(
                f"table {self._name}: {text!r} needs {error}, which is not available; {available}"
            ) from None

    def _display(self, column: str, value: str) -> str:
        named = self._named(value)
        return display_name(value) if named == value and column in SYSTEMS else named

    def _named(self, value: str) -> str:
        for pattern, name in self._specification.get("names", {}).items():
            value = re.sub(pattern, name, value)
        return value.strip()

    def _notes(self) -> Iterator[str]:
        run = self._frame[self._frame["n"] > 0] if "n" in self._frame else self._frame
        for note in self._specification.get("notes", ()):
            if isinstance(note, str):
                yield from self._own() if note == "own" else [NOTES.get(note, note)]
                continue
            rows = run[_matches(run, note.get("when", {}))]
            if len(rows):
                texts = rows.select_dtypes(exclude="number")
                yield note["text"].format_map({name: ", ".join(self._listed(name, texts[name])) for name in texts})
        yield from overlap_note(self._frame)
        yield from coverage_note(self._frame)

    def _own(self) -> Iterable[str]:
        return dict.fromkeys(filter(None, "\n".join(self._frame["_notes"]).split("\n")))

    def _listed(self, column: str, values: pd.Series) -> list[str]:
        return sorted({self._display(column, value) for value in values if isinstance(value, str)})


class _Rows(_Specified):
    """A table of rows that another module computed."""

    def table(self) -> Table:
        frame = self._frame.assign(_apart=_matches(self._frame, self._specification.get("apart", [])))
        rows = [
            {name: self._display(str(name), value) if isinstance(value, str) else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
        self._keys = {display_name(key): key for name in SYSTEMS if name in frame for key in set(frame[name])}
        columns, ((kind, named),) = dict(self._heads(rows)), self._specification["panel"].items()
        lines: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for place, row in enumerate(rows):
            lines[
                tuple(row[name] for name in self._specification["rows"]) if "rows" in self._specification else place
            ].append(row)
        panels: dict[str, list[Row]] = {}
        for line in sorted(
            lines.values(), key=lambda line: [line[0][name] for name in self._specification.get("order", [])]
        ):
            if (of := self._text(named, line[0])) or not named:
                values = [self._value_of(*each, line) for each in columns.values()]
                panels.setdefault(of, []).append(Row(values, line[0]["_apart"] and of in panels))
        title = self._text(self._specification["title"], rows[0])
        table = filled_table(self._name, title, [*columns], panels, [*self._notes()], self._lead([*columns]))
        return replace(table, panel=kind)

    def _heads(self, rows: list[dict[str, Any]]) -> Iterator[tuple[Column, tuple[str, Mapping[str, Any]]]]:
        """Yield each column, its template, and the value by which a line's row for this column is selected."""
        for entry in self._specification["columns"]:
            each = entry.get("each")
            for value in [None] if each is None else sorted({row[each] for row in rows}):
                facts = {} if each is None else {each: value}
                row = next(row for row in rows if facts.items() <= row.items())
                for head, inner in ((head, inner) for head, inner in entry.items() if head != "each"):
                    for title, template in (inner if isinstance(inner, Mapping) else {"": inner}).items():
                        title, group = (self._text(text, row) for text in ((title, head) if title else (head, "")))
                        yield Column(title, group, self._is_numeric(template)), (template, facts)

    def _is_numeric(self, template: str) -> bool:
        fields = self._fields(template.partition(CELLS)[0])
        return any(form or is_numeric_dtype(self._frame[name]) for name, form in fields)

    def _value_of(self, template: str, facts: Mapping[str, Any], line: Iterable[Mapping[str, Any]]) -> Value:
        row = next((row for row in line if facts.items() <= row.items()), None)
        if row is None:
            return Value("")
        number, _, cells = template.partition(CELLS)
        text, _, spread = (self._text(part, row) for part in number.removeprefix(BOLDLY).partition(" ± "))
        runs = tuple(self._text(cells, row).split())
        key = self._keys.get(text, "") if template.strip("{}") in SYSTEMS else ""
        bold = number.startswith(BOLDLY) and row["_bold"]
        return Value(text, spread, bold, runs, ", ".join(runs), key if key != text else "")

    def _text(self, template: str, row: Mapping[str, Any]) -> str:
        """Fill the template with the values of the row; "" if one of its numbers is NaN."""
        if any(isinstance(row[name], float) and isnan(row[name]) for name, _ in self._fields(template)):
            return ""
        return _FORMAT.vformat(template, (), row)

    def _fields(self, template: str) -> Iterator[tuple[str, str | None]]:
        """Yield the columns that a template names, with their formats."""
        for _, name, form, _ in _FORMAT.parse(template):
            if name is not None and name not in self._frame:
                raise UsageError(f"table {self._name}: its rows have no column {name!r}; {closest(name, self._frame)}")
            if name is not None:
                yield name, form


class _Format(Formatter):
    """Python's format strings, but percentages have no percent sign."""

    def format_field(self, value: Any, form: str) -> str:
        text = format(value, form)
        return text.removesuffix("%") if form.endswith("%") else text


_FORMAT = _Format()


class _Cells:
    """Averaged results, indexed by the values of some columns."""

    def __init__(self, frame: pd.DataFrame):
        self._all: list[Cell] = frame.to_dict("records")
        self._by: dict[tuple[str, ...], dict[tuple[str, ...], list[Cell]]] = {}
        self.systems = sorted(set(frame["system"]))

    def of(self, facts: Facts) -> list[Cell]:
        names = (*facts,)
        if names not in self._by:
            self._by[names] = defaultdict(list)
            for cell in self._all:
                self._by[names][tuple(cell[name] for name in names)].append(cell)
        return self._by[names].get((*facts.values(),), [])


def _ranked(cells: _Cells, order: Sequence[str]) -> list[str]:
    """Sort systems from worst to best by the measured or published values of metrics.

    The first metric of `order` counts; for systems without this metric, later metrics of `order` replace it. Systems
    without any metric of `order` are first.
    """
    measures = [signed.removeprefix("-") for signed in order]
    numbers = np.full((len(cells.systems), len(order)), np.nan)
    for (i, system), (j, measure) in product(enumerate(cells.systems), enumerate(measures)):
        matches = cells.of({"system": system, **({} if measure == "mean" else _facts(measure))})
        shown = [cell["published"] if isnan(cell["mean"]) else cell["mean"] for cell in matches]
        numbers[i, j] = np.mean(shown) if shown else np.nan
    for j, measure in enumerate(measures):
        lacks, both = np.isnan(numbers[:, 0]), ~np.isnan(numbers[:, [0, j]]).any(axis=1)
        other = numbers[:, j]
        if measure.endswith("bits_per_byte") and both.any():  # convert bits per byte to the scale of perplexities
            other = np.exp(other * np.median(np.log(numbers[both, 0]) / numbers[both, j]))
        numbers[lacks, 0] = other[lacks]
    signs = [-1 if signed.startswith("-") else 1 for signed in order]
    keys = np.nan_to_num(numbers * signs, nan=-inf).tolist()
    return [system for _, system in sorted(zip(keys, cells.systems, strict=True))]


def _facts(path: str) -> dict[str, str]:
    """Parse a path [task/][split/]metric into its parts; empty parts and * are left out."""
    parts = zip(("metric", "split", "task"), reversed(path.split("/")), strict=False)
    return {name: value for name, value in parts if value not in ("", "*")}


def _matches(frame: pd.DataFrame, where: Any) -> pd.Series:
    """Return a mask of the rows that meet all conditions of at least one alternative."""
    rows = pd.Series(False, frame.index)
    for conditions in _alternatives(where):
        own = pd.Series(True, frame.index)
        for column, condition in conditions.items():
            if isinstance(condition, Mapping):
                ((how, metric),) = condition.items()
                own &= frame[column].isin(frame.loc[frame["metric"] == metric, column]) == (how == "having")
                continue
            patterns = [condition] if isinstance(condition, str) else condition
            values = frame[column].unique()
            own &= frame[column].isin([value for value in values if any(fnmatchcase(value, each) for each in patterns)])
        rows |= own
    return rows


def _alternatives(where: Any) -> list[Mapping[str, Any]]:
    return [where] if isinstance(where, Mapping) else where


def _preferred(frame: pd.DataFrame, column: str, values: Sequence[str]) -> pd.DataFrame:
    """Keep, for each task, only the rows with the first of `values` that the task has."""
    places = frame[column].map({value: place for place, value in enumerate(values)})
    return frame[places == places.groupby(frame["task"]).transform("min")]


def _runs(cells: list[Cell]) -> Value:
    return runs_value([cell["n"] for cell in cells])


def _flops(cells: list[Cell]) -> Value:
    most = max((cell["flops"] for cell in cells if not isnan(cell["flops"])), default=None)
    return Value("" if most is None else f"{most:.1e}".replace("e+", "e"))


FROM_ALL: dict[str, Callable[[list[Cell]], Value]] = {
    "context": lambda cells: Value(max(cell["protocol"] for cell in cells)),
    "runs": _runs,
    "flops": _flops,
    "count": lambda cells: Value(span([cell["mean"] for cell in cells if not isnan(cell["mean"])])),
}
