"""One table in three markups: Markdown, LaTeX (booktabs) and HTML, each with its own escaping."""

import html
import re
from dataclasses import dataclass
from importlib import resources
from itertools import groupby


@dataclass(frozen=True)
class Value:
    """What stands in one field of a table."""

    text: str
    spread: str = ""  # a standard deviation, after ±
    bold: bool = False
    runs: tuple[str, ...] = ()  # the cells behind the number, which HTML links to
    hint: str = ""  # shown by HTML on hovering


@dataclass(frozen=True)
class Row:
    values: list[Value]
    apart: bool = False  # under a rule of its own: an oracle, a total


@dataclass(frozen=True)
class Column:
    title: str
    group: str = ""  # a heading over neighbouring columns
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    columns: list[Column]
    panels: dict[str, list[Row]]  # corpus, or what `panel` says: rows
    notes: list[str]
    panel: str = "Corpus"


def markdown_table(table: Table) -> str:
    """A heading, one pipe table a corpus (GitHub's flavour), and the notes."""
    heads = [" ".join(filter(None, [column.group, column.title])) for column in table.columns]
    parts = [f"### {_markdown(table.title)}"]
    for corpus, rows in table.panels.items():
        fields = [[_markdown(head) for head in heads]]
        fields += [[_markdown(value.text, value.spread, value.bold) for value in row.values] for row in rows]
        # padded, so that the source reads as a table too; a rule is one dash at least, beside the colon of numbers
        rules = [1 + column.numeric for column in table.columns]
        widths = [max(rule, *map(len, column)) for rule, column in zip(rules, zip(*fields, strict=True), strict=True)]
        fields.insert(
            1,
            [
                "-" * (width - column.numeric) + ":" * column.numeric
                for column, width in zip(table.columns, widths, strict=True)
            ],
        )
        parts += [f"{table.panel}: {_markdown(corpus)}", "\n".join(_pipes(table, line, widths) for line in fields)]
    return "\n\n".join([*parts, *map(_markdown, table.notes)]) + "\n"


def _pipes(table: Table, line: list[str], widths: list[int]) -> str:
    aligned = [
        text.rjust(width) if column.numeric else text.ljust(width)
        for text, column, width in zip(line, table.columns, widths, strict=True)
    ]
    return f"| {' | '.join(aligned)} |"


def latex_table(table: Table) -> str:
    """A `table` environment for `\\usepackage{booktabs}`, a panel a corpus."""
    width = len(table.columns)
    groups, heads = _groups(table), [_latex(column.title) for column in table.columns]
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_latex(' '.join([table.title + '.', *table.notes]))}}}",
        rf"  \label{{tab:{table.name}}}",
        rf"  \begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in table.columns)}}}",
        r"    \toprule",
    ]
    if any(group for group, _, _ in groups):
        spans = [
            rf"\multicolumn{{{n}}}{{c}}{{{_latex(group)}}}" if group else " & " * (n - 1) for group, _, n in groups
        ]
        rules = [rf"\cmidrule(lr){{{start + 1}-{start + n}}}" for group, start, n in groups if group]
        lines += [f"    {' & '.join(spans)} \\\\", f"    {' '.join(rules)}"]
    lines += [f"    {' & '.join(heads)} \\\\"]
    for corpus, rows in table.panels.items():
        lines += [r"    \midrule", rf"    \multicolumn{{{width}}}{{l}}{{\emph{{{_latex(corpus)}}}}} \\"]
        for row in rows:
            fields = [_latex(value.text, value.spread, value.bold) for value in row.values]
            lines += [r"    \addlinespace"] * row.apart + [f"    {' & '.join(fields)} \\\\"]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def html_table(table: Table, page: str = "") -> str:
    """A `figure` with the table; numbers link to `<page>#run-<cell>` of their first cell."""
    groups = _groups(table)
    head = "".join(f"<th{_align(column)} scope=col>{html.escape(column.title)}</th>" for column in table.columns)
    if any(group for group, _, _ in groups):
        spans = "".join(f'<th colspan="{n}" scope=colgroup>{html.escape(group)}</th>' for group, _, n in groups)
        head = f"{spans}</tr>\n<tr>{head}"
    rows_of_all = [row for rows in table.panels.values() for row in rows]
    spreads = [any(row.values[i].spread for row in rows_of_all) for i in range(len(table.columns))]
    body = []
    for corpus, rows in table.panels.items():
        span = f'colspan="{len(table.columns)}" scope=rowgroup'
        body.append(f"<tr class=panel><th {span}>{html.escape(corpus)}</th></tr>")
        for row in rows:
            first, *rest = (_html(value, page, spread) for value, spread in zip(row.values, spreads, strict=True))
            cells = [f"<td{_align(column)}>{text}</td>" for column, text in zip(table.columns[1:], rest, strict=True)]
            body.append(f"<tr{' class=apart' * row.apart}><th scope=row>{first}</th>{''.join(cells)}</tr>")
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in table.notes)
    return (
        f'<figure class=table id="table-{table.name}">\n<div class=scroll><table>\n'
        f"<caption>{html.escape(table.title)}</caption>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n"
        + "\n".join(body)
        + f"\n</tbody>\n</table></div>\n<figcaption>{notes}</figcaption>\n</figure>\n"
    )


def html_page(title: str, body: str) -> str:
    """A page that stands alone: the style sheet inside, nothing from the network."""
    css = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def anchor(cell: str) -> str:
    """The fragment of a cell's entry, in the report and among the runs."""
    return "run-" + re.sub(r"[^\w.-]", "-", cell)


def _groups(table: Table) -> list[tuple[str, int, int]]:
    """(heading, first column, number of columns) of each stretch of columns under one heading."""
    stretches = groupby(range(len(table.columns)), key=lambda i: table.columns[i].group)
    return [(group, (columns := list(stretch))[0], len(columns)) for group, stretch in stretches]


def _align(column: Column) -> str:
    return " class=n" if column.numeric else ""


def _markdown(text: str, spread: str = "", bold: bool = False) -> str:
    text = re.sub(r"([\\`*{}\[\]<>|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))", r"\\\1", text)
    return (f"**{text}**" if bold else text) + (f" ± {spread}" if spread else "")


_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
}


def _latex(text: str, spread: str = "", bold: bool = False) -> str:
    text = "".join(_LATEX.get(character, character) for character in text)
    return (rf"\textbf{{{text}}}" if bold else text) + (rf" $\pm$ {spread}" if spread else "")


def _html(value: Value, page: str, spread: bool) -> str:
    """A field; with `spread` it keeps the room for a standard deviation, so that decimal points align."""
    text = html.escape(value.text)
    if value.bold:
        text = f"<strong>{text}</strong>"
    hint = f' title="{html.escape(value.hint)}"' if value.hint else ""
    if value.runs:
        text = f'<a href="{page}#{anchor(value.runs[0])}"{hint}>{text}</a>'
    elif value.hint:
        text = f"<span{hint}>{text}</span>"
    return text + (f"<small>{'± ' * bool(value.spread)}{value.spread}</small>" if spread else "")
