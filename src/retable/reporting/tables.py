"""Tables from their specifications, such as those of `conf/table/`.

A specification says which of the aggregates (`results.aggregate`) a table is of, what its rows are, and its columns;
panels are corpora.

    title: Tagging
    where: {task: tagging}             # columns of the aggregates: a value, a list of them, or a pattern with *;
                                       #   {split: {having: equal}}: those that have a metric; lacking: that have not
    order: [test/f1, test/accuracy]    # rows from the worst to the best, by the first that they have; -metric: less is
    digits: 2                          #   better; mean: of all numbers. Digits after the point (an interval has one)
    scale: 100                         #   and what numbers are multiplied with
    columns:
    - runs                             # of the whole row: context, runs, flops, note; {Decoding: context}
    - Validation: {F1: validation/f1}  # a group; in it titles, and the number: metric, split/metric, task/split/metric,
    - Test:                            #   where * is any
        F1: [test/f1, interval, published, verdict]  # and what stands beside the mean
    notes: [What the numbers are., spread, bold]     # the latter are the usual ones

And where it is wanted:

    lead: [Runs, Test F1]              # what a page shows of a row at once, and the rest on a click; by default all
    others: true                       # of those rows that no other table is of
    prefer: {split: [test, validation]}              # of a task's splits the first that it has
    row: Section                       # what the first column is called
    rows:                              # blocks of rows; by default [{each: system}]
    - {each: split, metric: accuracy, last: total}   # the last one under a rule
    - {each: split, among: [total], metric: accuracy_mul, label: "{split}, by 3CosMul", apart: true}
    oracle: Bayes-optimal              # what the oracle's row is called; {label: …, task: ""}: where its numbers stand
    published: behind                  # a rule before systems that were not run, behind those that were
    names: {^f1$: F1}                  # how values of the aggregates, but systems, are written: regular expressions
    columns:
    - {each: [task, metric], "{task}": {"{metric}": [value, interval]}}   # repeated for all that there are
    - bits: {of: test/bits_per_byte, show: [published], digits: 4, bold: false, judged: true}
    - Questions: [seen, count]         # the least and the most of all that the row is of
    notes:
    - {text: "Without test labels: {task}.", when: {split: validation}}

`value` is the mean; `number` the mean or else what was published; a `judged` cell is empty where nothing was published.
In place of rows and columns `_target_` may name a function, from the aggregates to a `markup.Table`.

A specification with a `panel` instead of `where` shows rows that a module of this package computes. Title, lead, notes
and names are as above, and names apply to every text. The note `own` inserts the lines of the column `_notes`. Fields
are Python's format strings of a row's columns; a field is empty if one of its numbers is NaN, and {share:.1%} has no
percent sign. The CSV leaves out columns whose names begin with an underscore.

    title: Gradients, {corpus}
    each: corpus                       # one table per value of this column
    panel: {Corpus: "{corpus}"}        # what panels are, and the name of each; rows without a name are left out
    rows: [corpus, task]               # rows with the same values share one line; by default each has its own
    order: [corpus, mean]              # lines are sorted by these columns
    apart: {varied: length}            # these rows have a rule above
    columns:
    - {System: "{system}", PPL/word: "{mean:.2f} ± {std:.2f} ← {runs}"}  # ± spread ← cells behind the number
    - Gain: "{_bold}{difference:+.1%}" # bold where the column `_bold` is true
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
)
from retable.reporting.markup import Column, Row, Table, Value, markdown_table
from retable.reporting.overlap import overlap_note
from retable.reporting.results import CELL, ORACLE
from retable.reporting.spreadsheets import write_csv

Specification = Mapping[str, Any]
Facts = Mapping[str, str]  # values of columns of the aggregates, such as {split: test, metric: f1}
Cell = Mapping[str, Any]  # a row of the aggregates

KEYS = ("title", "where", "columns", "lead", "notes", "order", "digits", "scale", "others", "prefer", "row", "rows",
        "oracle", "published", "names", "_target_")  # fmt: skip
ROW_KEYS = ("title", "each", "panel", "rows", "order", "columns", "lead", "notes", "names", "apart")
WHOLE = {"context": "Context", "runs": "Runs", "flops": "FLOPs", "note": "Note"}  # columns of the whole row
TEXTS = ("context", "note", "verdict")
BESIDE = {"interval": "95 % interval", "published": "published", "verdict": "verdict"}
FACTS = (*CELL, "protocol", "verdict", "source", "note", "signature")  # what rows are chosen by
SHOWN = ("value", "number", "count", *BESIDE)
SETTINGS = {"digits": 2, "scale": 1, "bold": True, "judged": False}
MEASURE = ("of", "show", *SETTINGS)
CELLS, BOLDLY = " ← ", "{_bold}"  # after and before a number
NOTES = {"spread": SPREAD, "bold": BOLD}


class Shown(NamedTuple):
    """A column: what of each row's cell it shows, and what is known of the cell beside the row."""

    what: str  # of SHOWN or WHOLE
    facts: Facts
    digits: int = 0
    scale: float = 1
    bold: bool = True
    judged: bool = False


def write_tables(frame: pd.DataFrame, specifications: Mapping[str, Specification], folder: Path) -> list[Table]:
    """Write `<table>.{csv,md}` of each table that has rows; the same frame gives the same bytes.

    What an oracle has of a corpus, task and metric without a system to measure by it is left out, but where the table
    says itself where the oracle's numbers stand; and so is a table of published rows alone. Specifications with a
    `panel` are for `rows_tables`. UsageError for a specification that can't be followed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    specifications = {name: said for name, said in specifications.items() if "panel" not in said}
    for name, said in specifications.items():
        check(name, said)
    own = {name: _matches(frame, said["where"]) for name, said in specifications.items()}
    named = [rows for name, rows in own.items() if not specifications[name].get("others")]
    tables = []
    for name, said in specifications.items():
        rows = own[name] & ~np.logical_or.reduce(named) if said.get("others") else own[name]
        part = frame[rows]
        systems = part[part["system"] != ORACLE]
        is_placed = "_target_" in said or isinstance(said.get("oracle"), Mapping)
        of = ["corpus"] if is_placed else ["corpus", "task", "metric"]
        part = part[pd.MultiIndex.from_frame(part[of]).isin(pd.MultiIndex.from_frame(systems[of]))]
        if systems["n"].any():
            tables.append(write_table(specified_table(name, said, part), part, folder))
    return tables


def write_table(table: Table, frame: pd.DataFrame, folder: Path) -> Table:
    """Write `<table>.{csv,md}` into an existing folder, the CSV from `frame`, without columns such as `_notes`."""
    frame = frame.drop(columns=[name for name in frame if name.startswith("_")])
    if "signature" in frame and not frame["signature"].any():
        frame = frame.drop(columns="signature")
    # six digits: beyond them shows the order of summation, which is the machine's
    write_csv(frame, folder / f"{table.name}.csv", float_format="%.6g")
    (folder / f"{table.name}.md").write_text(markdown_table(table), encoding="utf-8")
    return table


def check(name: str, said: Specification) -> None:
    """Raise UsageError for a specification with a key that there is none of, or without one that it needs."""
    for key in said:
        if key not in KEYS:
            raise UsageError(f"table {name} has no key {key!r}; {closest(key, KEYS)}")
    needed = ["where"] if "_target_" in said else ["title", "where", "columns"]
    if missing := [key for key in needed if key not in said]:
        raise UsageError(
            f"table {name} has no {', '.join(missing)}; see src/retable/reporting/tables.py for an example"
        )
    for column in (column for column in said.get("columns", ()) if isinstance(column, str)):
        if column not in WHOLE:
            raise UsageError(f"table {name}: there is no column {column!r} of a whole row; {closest(column, WHOLE)}")
    for key in (key for key in _named_columns(said) if key not in FACTS):
        raise UsageError(f"table {name}: there is no column {key!r} of the aggregates; {closest(key, FACTS)}")
    for column, wanted in (item for where in _conditions(said) for item in where.items()):
        by_metric = isinstance(wanted, Mapping) and [*wanted] in (["having"], ["lacking"])
        if not (by_metric or isinstance(wanted, str | list)):
            raise UsageError(
                f"table {name}: {column}: {wanted} chooses no rows; write a value, a pattern, a list of them, or "
                "{having: METRIC} or {lacking: METRIC}"
            )
    for key in ("digits", "scale"):
        if not isinstance(said.get(key, 0), int | float):
            raise UsageError(f"table {name}: {key}: {said[key]} is no number; write {key}: {SETTINGS[key]}")


def _conditions(said: Specification) -> Iterator[Mapping[str, Any]]:
    """What a specification asks of rows: of all of them, and where it has a note."""
    yield from _alternatives(said["where"])
    for note in said.get("notes", ()):
        if isinstance(note, Mapping):
            yield from _alternatives(note.get("when", {}))


def _named_columns(said: Specification) -> Iterator[str]:
    """The columns of the aggregates that a specification names."""
    for where in _conditions(said):
        yield from where
    yield from said.get("prefer", {})
    for block in (*said.get("rows", ()), *said.get("columns", ())):
        if isinstance(block, Mapping) and "each" in block:
            yield from [block["each"]] if isinstance(block["each"], str) else block["each"]


def specified_table(name: str, said: Specification, frame: pd.DataFrame) -> Table:
    """The table of these rows of the aggregates."""
    if "_target_" in said:
        try:
            make = resolve(said["_target_"])
        except UsageError as error:
            raise UsageError(f"table {name}: {error}") from error
        return make(frame)
    return _Specified(name, said, frame).table()


def rows_tables(name: str, said: Specification, frame: pd.DataFrame) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The tables of rows by their specification, each with its rows. UsageError for another key than it may have, or a
    column that the rows don't have."""
    if unknown := next((key for key in said if key not in ROW_KEYS), None):
        raise UsageError(f"table {name} has no key {unknown!r}; {closest(unknown, ROW_KEYS)}")
    if frame.empty:
        return
    for value, part in frame.groupby(said["each"], sort=False) if "each" in said else [("", frame)]:
        yield _Rows(f"{name}-{value}" if "each" in said else name, said, part).table(), part


class _Specified:
    """A table in the making."""

    def __init__(self, name: str, said: Specification, frame: pd.DataFrame):
        for column, values in said.get("prefer", {}).items():
            frame = _preferred(frame, column, values)
        self._name, self._said, self._frame = name, said, frame
        oracle = said.get("oracle", "true distribution")
        self._oracle: Facts = {"label": oracle} if isinstance(oracle, str) else oracle

    def table(self) -> Table:
        columns = [*self._columns()]
        heads = [Column(self._said.get("row", "System"), numeric=False), *(column for column, _ in columns)]
        corpora = sorted(self._frame.groupby("corpus"), key=lambda item: (not item[1]["n"].any(), item[0]))
        panels = {str(corpus): [*self._rows(part, [shown for _, shown in columns])] for corpus, part in corpora}
        return filled_table(self._name, self._said["title"], heads, panels, [*self._notes()], self._lead(heads))

    def _lead(self, columns: list[Column]) -> tuple[str, ...]:
        names = {column.name for column in columns}
        for name in (lead := tuple(self._said.get("lead", ()))):
            if name not in names:
                raise UsageError(f"table {self._name}, lead: there is no column {name!r}; {closest(name, names)}")
        return lead

    def _columns(self) -> Iterator[tuple[Column, Shown]]:
        for said in self._said["columns"]:
            said = {WHOLE[said]: said} if isinstance(said, str) else said
            heads = {key: inner for key, inner in said.items() if key != "each"}
            for facts in self._found(self._frame, said["each"]) if "each" in said else [{}]:
                for head, inner in heads.items():
                    is_group = isinstance(inner, dict) and not set(inner) <= set(MEASURE)
                    group = self._filled(head, facts) if is_group else ""
                    for title, measure in (inner if is_group else {head: inner}).items():
                        for shown in self._measured(measure, facts):
                            own = BESIDE.get(shown.what) or self._filled(title, facts)
                            yield Column(own, group, numeric=shown.what not in TEXTS), shown

    def _measured(self, said: Any, facts: Facts) -> Iterator[Shown]:
        """What is shown of a number, or of the whole row."""
        if isinstance(said, str) and said in WHOLE:
            yield Shown(said, {})
            return
        if not isinstance(said, dict):
            listed = [said] if isinstance(said, str) else [*said]
            of = "" if listed[0] in SHOWN else listed.pop(0)
            said = {"of": of, "show": listed if {"value", "number", "count"} & {*listed} else ["value", *listed]}
        settings = {key: said.get(key, self._said.get(key, usual)) for key, usual in SETTINGS.items()}
        of = {**facts, **_facts(said.get("of", "").format_map(facts))}
        for what in said.get("show", ["value"]):
            if what not in SHOWN:
                raise UsageError(f"table {self._name}: nothing is shown as {what!r}; {closest(what, SHOWN)}")
            yield Shown(what, of, **settings | ({"digits": 1} if what == "interval" else {}))

    def _rows(self, part: pd.DataFrame, columns: Sequence[Shown]) -> Iterator[Row]:
        cells = _Cells(part)
        for block in self._said.get("rows", [{"each": "system"}]):
            if block.get("each") == "system":
                yield from self._systems(cells, columns)
                continue
            fixed = {key: value for key, value in block.items() if key in CELL}
            rows = self._found(part[_matches(part, fixed)], block["each"]) if "each" in block else [{}]
            rows = [facts for facts in rows if {*facts.values()} <= {*block.get("among", facts.values())}]
            rows.sort(key=lambda facts: block.get("last") in facts.values())
            for place, facts in enumerate(rows):
                label = self._filled(block.get("label", f"{{{block.get('each')}}}"), facts)
                values = [self._value(cells, each, {**facts, **fixed, **each.facts}) for each in columns]
                apart = block.get("last") in facts.values() or (block.get("apart", False) and place == 0)
                yield Row([Value(label), *values], apart)

    def _systems(self, cells: "_Cells", columns: Sequence[Shown]) -> Iterator[Row]:
        """A row a system, from the worst to the best, the oracle last."""

        def is_behind(system: str) -> int:
            was_run = any(cell["n"] for cell in cells.of({"system": system}))
            return 2 if system == ORACLE else self._said.get("published") == "behind" and not was_run

        blocks = groupby(sorted(_ranked(cells, self._said.get("order", ())), key=is_behind), is_behind)
        for block, systems in blocks:
            for place, system in enumerate(systems):
                own = {key: value for key, value in self._oracle.items() if key in CELL and system == ORACLE}
                values = [self._value(cells, each, {**each.facts, "system": system, **own}) for each in columns]
                label = f"{self._oracle['label']} (oracle)" if system == ORACLE else system
                yield Row([Value(label), *values], apart=block > 0 and place == 0)

    def _value(self, cells: "_Cells", shown: Shown, facts: Facts) -> Value:
        found = cells.of(facts)
        if shown.what in FROM_ALL:
            return FROM_ALL[shown.what](found)
        if shown.what == "note":
            return Value(self._note(found))
        if len(found) > 1:
            which = " and ".join("/".join(str(cell[name]) for name in CELL) for cell in found[:2])
            raise UsageError(f"table {self._name}: a column of {dict(shown.facts)} is of {which}; say more of it")
        cell = found[0] if found else None
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
        """What the first cell of each task has to say, those beside a published number first; with the tasks that it is
        said of, if not of all."""
        beside = sorted(cells, key=lambda cell: isnan(cell["published"]))
        first = {self._named(cell["task"]): cell for cell in reversed(beside) if cell["note"]}
        every = {self._named(cell["task"]) for cell in cells if not isnan(cell["published"])} or {*first}
        tasks: dict[str, list[str]] = defaultdict(list)
        for task, cell in sorted(first.items()):
            for note in cell["note"].split("; "):
                tasks[note].append(task)
        return "; ".join(note if every <= {*of} else f"{', '.join(of)}: {note}" for note, of in tasks.items())

    def _found(self, frame: pd.DataFrame, each: str | Sequence[str]) -> list[Facts]:
        """The values of columns of the aggregates, in their order; systems, where they have one, from the worst."""
        names = [each] if isinstance(each, str) else [*each]
        found = sorted(set(frame[names].itertuples(index=False, name=None)))
        if names == ["system"] and "order" in self._said:
            found = [(system,) for system in _ranked(_Cells(frame), self._said["order"])]
        return [dict(zip(names, values, strict=True)) for values in found]

    def _filled(self, text: str, facts: Facts) -> str:
        try:
            return text.format_map({k: value if k == "system" else self._named(value) for k, value in facts.items()})
        except KeyError as error:
            said = ", ".join(facts) or "nothing; say what it is of by each:"
            raise UsageError(f"table {self._name}: {text!r} asks for {error}, and there is {said}") from None

    def _named(self, value: str) -> str:
        for pattern, name in self._said.get("names", {}).items():
            value = re.sub(pattern, name, value)
        return value.strip()

    def _notes(self) -> Iterator[str]:
        run = self._frame[self._frame["n"] > 0] if "n" in self._frame else self._frame
        for said in self._said.get("notes", ()):
            if isinstance(said, str):
                yield from self._own() if said == "own" else [NOTES.get(said, said)]
                continue
            rows = run[_matches(run, said.get("when", {}))]
            if len(rows):
                texts = rows.select_dtypes(exclude="number")
                yield said["text"].format_map({name: ", ".join(self._listed(texts[name])) for name in texts})
        yield from overlap_note(self._frame)

    def _own(self) -> Iterable[str]:
        return dict.fromkeys(filter(None, "\n".join(self._frame["_notes"]).split("\n")))

    def _listed(self, values: pd.Series) -> list[str]:
        return sorted({self._named(value) for value in values if isinstance(value, str)})


class _Rows(_Specified):
    """A table of rows as they are."""

    def table(self) -> Table:
        frame = self._frame.assign(_apart=_matches(self._frame, self._said.get("apart", [])))
        rows = [
            {name: self._named(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
        columns, ((kind, named),) = dict(self._heads(rows)), self._said["panel"].items()
        lines: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for place, row in enumerate(rows):
            lines[tuple(row[name] for name in self._said["rows"]) if "rows" in self._said else place].append(row)
        panels: dict[str, list[Row]] = {}
        for line in sorted(lines.values(), key=lambda line: [line[0][name] for name in self._said.get("order", [])]):
            if (of := self._text(named, line[0])) or not named:
                values = [self._value_of(*each, line) for each in columns.values()]
                panels.setdefault(of, []).append(Row(values, line[0]["_apart"] and of in panels))
        title = self._text(self._said["title"], rows[0])
        made = filled_table(self._name, title, [*columns], panels, [*self._notes()], self._lead([*columns]))
        return replace(made, panel=kind)

    def _heads(self, rows: list[dict[str, Any]]) -> Iterator[tuple[Column, tuple[str, Mapping[str, Any]]]]:
        """Each column with what it shows, and of which of the rows of a line."""
        for said in self._said["columns"]:
            each = said.get("each")
            for value in [None] if each is None else sorted({row[each] for row in rows}):
                facts = {} if each is None else {each: value}
                row = next(row for row in rows if facts.items() <= row.items())
                for head, inner in ((head, inner) for head, inner in said.items() if head != "each"):
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
        return Value(text, spread, number.startswith(BOLDLY) and row["_bold"], runs, ", ".join(runs))

    def _text(self, template: str, row: Mapping[str, Any]) -> str:
        """The template with the values of the row; "" where one of its numbers is not known."""
        if any(isinstance(row[name], float) and isnan(row[name]) for name, _ in self._fields(template)):
            return ""
        return _FORMAT.vformat(template, (), row)

    def _fields(self, template: str) -> Iterator[tuple[str, str | None]]:
        """The columns that a template names, and the formats."""
        for _, name, form, _ in _FORMAT.parse(template):
            if name is not None and name not in self._frame:
                raise UsageError(f"table {self._name}: its rows have no {name!r}; {closest(name, self._frame)}")
            if name is not None:
                yield name, form


class _Format(Formatter):
    """Python's format strings; a percentage is written without the sign."""

    def format_field(self, value: Any, form: str) -> str:
        text = format(value, form)
        return text.removesuffix("%") if form.endswith("%") else text


_FORMAT = _Format()


class _Cells:
    """Rows of the aggregates, by some of their facts."""

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
    """The systems from the worst to the best by the first measure, or else by those behind it, measured or published.
    One without any comes first."""
    measures = [said.removeprefix("-") for said in order]
    numbers = np.full((len(cells.systems), len(order)), np.nan)
    for (i, system), (j, measure) in product(enumerate(cells.systems), enumerate(measures)):
        found = cells.of({"system": system, **({} if measure == "mean" else _facts(measure))})
        shown = [cell["published"] if isnan(cell["mean"]) else cell["mean"] for cell in found]
        numbers[i, j] = np.mean(shown) if shown else np.nan
    for j, measure in enumerate(measures):
        lacks, both = np.isnan(numbers[:, 0]), ~np.isnan(numbers[:, [0, j]]).any(axis=1)
        other = numbers[:, j]
        if measure.endswith("bits_per_byte") and both.any():  # whose exponential is a perplexity
            other = np.exp(other * np.median(np.log(numbers[both, 0]) / numbers[both, j]))
        numbers[lacks, 0] = other[lacks]
    signs = [-1 if said.startswith("-") else 1 for said in order]
    keys = np.nan_to_num(numbers * signs, nan=-inf).tolist()
    return [system for _, system in sorted(zip(keys, cells.systems, strict=True))]


def _facts(path: str) -> dict[str, str]:
    """What [task/][split/]metric says; * says nothing."""
    said = zip(("metric", "split", "task"), reversed(path.split("/")), strict=False)
    return {name: value for name, value in said if value not in ("", "*")}


def _matches(frame: pd.DataFrame, where: Any) -> pd.Series:
    """Which rows one of the alternatives describes."""
    rows = pd.Series(False, frame.index)
    for said in _alternatives(where):
        own = pd.Series(True, frame.index)
        for column, wanted in said.items():
            if isinstance(wanted, Mapping):
                ((how, metric),) = wanted.items()
                own &= frame[column].isin(frame.loc[frame["metric"] == metric, column]) == (how == "having")
                continue
            patterns = [wanted] if isinstance(wanted, str) else wanted
            values = frame[column].unique()
            own &= frame[column].isin([value for value in values if any(fnmatchcase(value, each) for each in patterns)])
        rows |= own
    return rows


def _alternatives(where: Any) -> list[Mapping[str, Any]]:
    return [where] if isinstance(where, Mapping) else where


def _preferred(frame: pd.DataFrame, column: str, values: Sequence[str]) -> pd.DataFrame:
    """Of each task the rows with the first of the values that it has."""
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
