"""Update the tables and files shown in README.md and docs/: `python -m pipelines.cli.pages`.

A generated part of a page begins with `<!-- name -->` and ends with `<!-- end name -->`. The name is one of these:

- a key of `PIECES`, for some columns of a committed table
- `systems: page`, for the systems of one family in docs/systems.yaml
- `studies` for all studies, or `answers` for the studies that README.md shows
- `scoreboard` for all published numbers, or `totals` for their counts
- `data_sets` for the data sets of conf/data

The code block after "This is `file`:" contains that whole file. All other text is written by hand.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pipelines.config.errors import one_line_errors
from pipelines.config.project import CONF
from retable.core.errors import UsageError

ROOT = CONF.parent


class Piece(NamedTuple):
    source: str  # a report's table in Markdown
    columns: Mapping[str, str]  # maps heads of the table's columns to their names on the page


PIECES = {
    "lineage": Piece(
        "studies/history/results/lineage.md",
        {
            "System": "system",
            "Year": "year",
            "Test PPL/word": "PPL/word",
            "Test 95 % interval": "95 % interval",
            "Against the row before verdict": "against the row before",
        },
    ),
    "gains": Piece(
        "studies/history/results/gains.md",
        {
            "Pretraining": "pretraining",
            "Task": "task",
            "Metric": "metric",
            "Labels": "labels",
            "From scratch": "from scratch",
            "Pretrained": "pretrained",
            "Gain 95 % interval": "gain, 95 % interval",
        },
    ),
}
_PIECE = re.compile(r"<!-- (\w+|systems: [\w-]+) -->\n.*?<!-- end \1 -->", re.DOTALL)
_FILE = re.compile(r"(This\s+is\s+`((?:conf|src|studies)/[\w/.-]+)`:\n\n```\w+\n).*?(?=```)", re.DOTALL)


def table_of(piece: Piece) -> str:
    """Return the columns listed in `piece` as a Markdown table; raise UsageError if `piece.source` lacks a column."""
    blocks = (ROOT / piece.source).read_text(encoding="utf-8").split("\n\n")
    tables = [
        [[field.strip() for field in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        for block in blocks
        if block.startswith("|")
    ]
    rows = max(tables, key=lambda table: len(table[0]))  # the panel with the most columns; of equal ones, the first
    if missing := [head for head in piece.columns if head not in rows[0]]:
        raise UsageError(f"{piece.source} has no column {missing[0]!r}; its columns are {', '.join(rows[0])}")
    kept = [rows[0].index(head) for head in piece.columns]
    numeric = [rows[1][place].endswith(":") for place in kept]
    fields = [[*piece.columns.values()], *([row[place] for place in kept] for row in rows[2:])]
    widths = [max(3, *map(len, column)) for column in zip(*fields, strict=True)]
    rule = ["-" * (width - right) + ":" * right for width, right in zip(widths, numeric, strict=True)]
    return "\n".join(
        "| " + " | ".join(_aligned(*each) for each in zip(row, widths, numeric, strict=True)) + " |"
        for row in (fields[0], rule, *fields[1:])
    )


def _aligned(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def filled(text: str) -> str:
    """Return a page's text with the page's tables and files updated."""

    def piece(match: re.Match[str]) -> str:
        name = match[1]
        if name in ("studies", "answers"):
            from docs import studies_table

            table = studies_table.table_of_studies() if name == "studies" else studies_table.table_of_answers()
        elif name in ("scoreboard", "totals"):
            from docs import scoreboard

            more = "[All numbers](docs/scoreboard.md), [all studies](docs/studies.md)."
            table = scoreboard.scoreboard() if name == "scoreboard" else scoreboard.totals(more)
        elif name == "data_sets":
            from docs.data_table import table_of_data_sets

            table = table_of_data_sets()
        elif name.startswith("systems: "):
            from docs.catalogue import table_of_systems  # installed packages do not contain docs/

            table = table_of_systems(name.removeprefix("systems: "))
        elif name in PIECES:
            table = table_of(PIECES[name])
        else:
            raise UsageError(f"unknown piece {name!r}; pipelines/cli/pages.py has {', '.join(PIECES)}")
        return f"<!-- {name} -->\n\n{table}\n\n<!-- end {name} -->"

    def file(match: re.Match[str]) -> str:
        return match[1] + (ROOT / match[2]).read_text(encoding="utf-8")

    return _FILE.sub(file, _PIECE.sub(piece, text))


def pages() -> list[Path]:
    """Return the Markdown pages at the top of the checkout and in docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    with one_line_errors():
        for path in pages():
            text = path.read_text(encoding="utf-8")
            if (new := filled(text)) != text:
                path.write_text(new, encoding="utf-8")
                print(f"updated {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
