"""Tables, and their conversion to Markdown and LaTeX (booktabs). For HTML, see `page`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from retable.core.escaping import latex, markdown

SHOWN = 7  # Maximum number of columns that are visible at first.
# Titles or groups of less important columns; the least important comes last.
LESS = ("published", "95 % interval", "Validation", "Runs", "Context", "FLOPs", "Note")


@dataclass(frozen=True)
class Value:
    """The contents of one field of a table."""

    text: str
    spread: str = ""  # a standard deviation, shown after ±
    bold: bool = False
    runs: tuple[str, ...] = ()  # Names of the cells (runs) that the number comes from; HTML links to them.
    hint: str = ""  # A text that HTML shows on hover.
    key: str = ""  # Key of the system, if the text is a display name.


@dataclass(frozen=True)
class Row:
    values: list[Value]
    apart: bool = False  # whether there is a rule above the row, as above an oracle or a total


@dataclass(frozen=True)
class Column:
    title: str
    group: str = ""  # a heading over neighbouring columns
    numeric: bool = True
    key: str = ""  # key of the system, if the group (or the title without a group) is a display name

    @property
    def name(self) -> str:
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: list[Column]
    panels: dict[str, list[Row]]  # rows by corpus, or by the property that `panel` names
    notes: list[str]
    panel: str = "Corpus"
    lead: tuple[str, ...] = ()  # columns that are visible at first in addition to column 1, by importance


def leading(columns: Sequence[Column], lead: Sequence[str] = ()) -> list[int]:
    """Return the indices of the columns that are visible at first, at most SHOWN, by importance.

    The first column and the columns in `lead` are visible. If the table has no column of `lead`, all columns are
    candidates, and those in LESS come last.
    """
    listed = [place for name in dict.fromkeys(lead) for place in range(1, len(columns)) if columns[place].name == name]
    others = sorted(range(1, len(columns)), key=lambda place: _less(columns[place]))
    return [0, *(listed or others)][: min(SHOWN, len(columns))]


def _less(column: Column) -> int:
    return max(LESS.index(name) + 1 if name in LESS else 0 for name in (column.title, column.group))


def markdown_table(table: Table, folded: bool = True) -> str:
    """Convert a table to Markdown: a heading, panels with the most important columns, all columns in a fold, and notes.

    folded: if false, all columns are visible, without a fold.
    """
    every = [*range(len(table.columns))]
    first = sorted(leading(table.columns, table.lead)) if folded else every
    parts = [f"### {_markdown(table.title)}", *_panels(table, first)]
    if len(first) < len(every):
        summary = f"<details>\n<summary>All {len(every)} columns</summary>"
        parts += [summary, *_panels(table, every), "</details>"]
    return "\n\n".join([*parts, *map(_markdown, table.notes)]) + "\n"


def _panels(table: Table, places: Sequence[int]) -> Iterator[str]:
    """Yield the name of each panel, and its pipe table (GitHub's flavour) with the columns `places`."""
    columns = [table.columns[place] for place in places]
    for corpus, rows in table.panels.items():
        fields = [[_markdown(column.name) for column in columns]]
        fields += [[_field(row.values[place]) for place in places] for row in rows]
        # Fields are padded, so that the source is readable. The line below the header has at least one dash per column,
        # and a colon for columns with numbers.
        rules = [1 + column.numeric for column in columns]
        widths = [max(rule, *map(len, column)) for rule, column in zip(rules, zip(*fields, strict=True), strict=True)]
        sized = zip(columns, widths, strict=True)
        fields.insert(1, ["-" * (width - column.numeric) + ":" * column.numeric for column, width in sized])
        if corpus:
            yield f"{table.panel}: {_markdown(corpus)}"
        yield "\n".join(_pipes(columns, line, widths) for line in fields)


def _field(value: Value) -> str:
    return _markdown(value.text, value.spread, value.bold) + f" (`{value.key}`)" * bool(value.key)


def _pipes(columns: Sequence[Column], line: list[str], widths: list[int]) -> str:
    sized = zip(line, columns, widths, strict=True)
    aligned = [text.rjust(width) if column.numeric else text.ljust(width) for text, column, width in sized]
    return f"| {' | '.join(aligned)} |"


def latex_table(table: Table) -> str:
    """Return a `table` environment with all panels, for use with `\\usepackage{booktabs}`."""
    width = len(table.columns)
    grouped, heads = groups(table.columns), [_latex(column.title) for column in table.columns]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex(' '.join([table.title + '.', *table.notes]))}}}",
        rf"  \label{{{anchor(table.name, 'tab:')}}}",
        rf"  \begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"    \toprule",
    ]
    if any(group for group, _, _ in grouped):
        spans = [
            rf"\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1) for group, _, n in grouped
        ]
        rules = [rf"\cmidrule(lr){{{start + 1}-{start + n}}}" for group, start, n in grouped if group]
        lines += [f"    {' & '.join(spans)} \\\\", f"    {' '.join(rules)}"]
    lines += [f"    {' & '.join(heads)} \\\\"]
    for corpus, rows in table.panels.items():
        lines += [r"    \midrule", rf"    \multicolumn{{{width}}}{{l}}{{\emph{{{_latex(corpus)}}}}} \\"]
        for row in rows:
            fields = [_latex(value.text, value.spread, value.bold) for value in row.values]
            lines += [r"    \addlinespace"] * row.apart + [f"    {' & '.join(fields)} \\\\"]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def anchor(name: str, kind: str = "run-") -> str:
    """Return the target of a link to a cell's entry in a page, or to a table in LaTeX."""
    return kind + re.sub(r"[^\w.-]", "-", name)


def groups(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """Return (heading, first column, number of columns) for each group of columns under one heading."""
    stretches = groupby(range(len(columns)), key=lambda i: columns[i].group)
    return [(group, (places := list(stretch))[0], len(places)) for group, stretch in stretches]


def _markdown(text: str, spread: str = "", bold: bool = False) -> str:
    text = markdown(text)
    return (f"**{text}**" if bold else text) + (f" ± {spread}" if spread else "")


def _latex(text: str, spread: str = "", bold: bool = False) -> str:
    text = latex(text)
    return (rf"\textbf{{{text}}}" if bold else text) + (rf" $\pm$ {spread}" if spread else "")
