"""Tables, and their conversion to Markdown and LaTeX (booktabs); for HTML see `page`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from retable.core.escaping import latex, markdown


@dataclass(frozen=True)
class Value:
    """The contents of one field of a table."""

    text: str
    spread: str = ""  # a standard deviation, after ±
    bold: bool = False
    runs: tuple[str, ...] = ()  # cells that the number comes from, which HTML links to
    hint: str = ""  # shown in HTML on hover


@dataclass(frozen=True)
class Row:
    values: list[Value]
    apart: bool = False  # has a rule above it, such as an oracle or a total


@dataclass(frozen=True)
class Column:
    title: str
    group: str = ""  # a heading over neighbouring columns
    numeric: bool = True

    @property
    def name(self) -> str:
        return f"{self.group} {self.title}".strip()


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: list[Column]
    panels: dict[str, list[Row]]  # rows by corpus, or by the kind in `panel`
    notes: list[str]
    panel: str = "Corpus"
    lead: tuple[str, ...] = ()  # columns that a page shows without a click; empty: all


def markdown_table(table: Table) -> str:
    """Return a heading, one pipe table per panel (GitHub's flavour), and the notes."""
    heads = [column.name for column in table.columns]
    parts = [f"### {_markdown(table.title)}"]
    for corpus, rows in table.panels.items():
        fields = [[_markdown(head) for head in heads]]
        fields += [[_markdown(value.text, value.spread, value.bold) for value in row.values] for row in rows]
        # padded, so that the source is readable; a rule has at least one dash, and for numbers a colon
        rules = [1 + column.numeric for column in table.columns]
        widths = [max(rule, *map(len, column)) for rule, column in zip(rules, zip(*fields, strict=True), strict=True)]
        sized = zip(table.columns, widths, strict=True)
        fields.insert(1, ["-" * (width - column.numeric) + ":" * column.numeric for column, width in sized])
        parts += [f"{table.panel}: {_markdown(corpus)}"] * bool(corpus)
        parts += ["\n".join(_pipes(table, line, widths) for line in fields)]
    return "\n\n".join([*parts, *map(_markdown, table.notes)]) + "\n"


def _pipes(table: Table, line: list[str], widths: list[int]) -> str:
    sized = zip(line, table.columns, widths, strict=True)
    aligned = [text.rjust(width) if column.numeric else text.ljust(width) for text, column, width in sized]
    return f"| {' | '.join(aligned)} |"


def latex_table(table: Table) -> str:
    """Return a `table` environment for `\\usepackage{booktabs}`, with all panels."""
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
    """Return an identifier for links: to a cell's entry in a page, or to a table in LaTeX."""
    return kind + re.sub(r"[^\w.-]", "-", name)


def groups(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    """Return (heading, first column, number of columns) of each run of columns under one heading."""
    stretches = groupby(range(len(columns)), key=lambda i: columns[i].group)
    return [(group, (places := list(stretch))[0], len(places)) for group, stretch in stretches]


def _markdown(text: str, spread: str = "", bold: bool = False) -> str:
    text = markdown(text)
    return (f"**{text}**" if bold else text) + (f" ± {spread}" if spread else "")


def _latex(text: str, spread: str = "", bold: bool = False) -> str:
    text = latex(text)
    return (rf"\textbf{{{text}}}" if bold else text) + (rf" $\pm$ {spread}" if spread else "")
