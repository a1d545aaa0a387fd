"""The page of a study, `report.html`: one file that needs no network, with sortable tables and interactive figures.

A click on a number opens the entries of the cells (runs) that the number comes from. The page describes one execution
of the study, with its MLflow runs, commits and seconds. The CSV, Markdown and SVG files next to the page depend only on
the numbers.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from math import isnan
from types import MappingProxyType
from typing import Any

import pandas as pd
import vl_convert
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from retable.metrics.likelihood import LIKELIHOODS
from retable.reporting import verdicts as rule
from retable.reporting.figures import Figure
from retable.reporting.markup import Column, Row, Table, Value, anchor, groups, leading
from retable.reporting.names import display_name, meaning
from retable.reporting.provenance import Entry

NOTE = "Note"  # title of the column that becomes footnotes


def report_page(
    title: str,
    about: str,
    facts: Sequence[str],
    frame: pd.DataFrame,
    tables: Sequence[Table],
    figures: Mapping[str, Figure],
    cells: Mapping[str, Sequence[Entry]],
    again: str = "",
    falling: Sequence[str] = (),
    question: str = "",
    answer: str = "",
    main: Mapping[str, Figure] = MappingProxyType({}),
) -> str:
    """Return the HTML of the page of a study, or of sweeps.

    Args:
        title: title of the page.
        about: the study's purpose.
        facts: sentences about the runs.
        frame: averaged results (`results.aggregate`), for verdicts and sources.
        tables: the tables, in the order of the page.
        figures: figures by title.
        cells: the entries of cells, by heading.
        again: the command that repeats the whole study.
        falling: a line per system whose validation loss was still falling at the end of training.
        question, answer: texts of the study, shown at the top of the page.
        main: the figures below the answer, by the finding that each of them shows.
    """
    environment = Environment(
        loader=PackageLoader("retable.reporting"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["anchor"] = anchor
    template = environment.get_template("report.html")
    return template.render(
        title=title,
        about=about,
        facts=facts,
        falling=falling,
        verdicts=verdicts(frame),
        failures=failures(frame),
        tables=[_table(table) for table in tables],
        question=question,
        answer=answer,
        again=again,
        main=_charts(main),
        figures=_charts(figures),
        cells=cells.items(),
        sources=[*_sources(frame)],
        css=Markup(_template("report.css")),
        scripts=_scripts(drawn=bool(figures or main)),
    )


def _charts(figures: Mapping[str, Figure]) -> list[dict[str, Any]]:
    return [{"title": title, "spec": _json(figure.to_dict())} for title, figure in figures.items()]


def failures(frame: pd.DataFrame) -> list[str]:
    """Return a line per number that is outside the tolerance of the published number.

    The notes of the tables contain known reasons why a number is outside its tolerance.
    """
    return [
        f"{display_name(row.system)} on {row.corpus}, {row.split} {row.metric}: "
        f"{row.mean:.{2 if row.metric in LIKELIHOODS else 4}f}, published "
        f"{row.published:g} ± {row.tolerance:.3g} ({row.source})"
        for row in frame[frame["verdict"].isin(rule.OUTSIDE)].itertuples()
    ]


def verdicts(frame: pd.DataFrame) -> list[tuple[str, int, str]]:
    """Return each verdict with the number of its rows and its meaning.

    Published rows that were not run are counted separately. If no row was judged, only the counts of the rows that were
    not run are returned.
    """
    counts = Counter(frame["verdict"])
    judged = [
        (each, counts[each], meaning)
        for each, meaning in rule.MEANINGS.items()
        if counts[each] or each in (rule.PASS, rule.FAIL)
    ]
    unrun = [
        ("unrun", counts[rule.NOT_RUN], "published, but not run"),
        ("unrun", counts[rule.ELSEWHERE], "published, and run in another study"),
    ]
    return judged * any(count for _, count, _ in judged) + [each for each in unrun if each[1]]


def _sources(frame: pd.DataFrame) -> Iterable[str]:
    """Yield a line per publication with all numbers that it published."""
    for source, rows in frame[frame["published"].notna()].groupby("source", sort=False):
        numbers = [
            f"{display_name(row.system)}, {row.corpus}, {row.split}: {row.published:g}"
            + ("" if isnan(row.tolerance) else f" ± {row.tolerance:.3g}")
            for row in rows.itertuples()
        ]
        yield f"{source}. {'; '.join(numbers)}."


def _table(table: Table) -> dict[str, Any]:
    """Convert a table to the values that the page's template inserts.

    Measured rows are separated from published rows that were not run; the latter show the requirements of a run. Notes
    on measured rows become footnotes.
    """
    note = next((i for i, column in enumerate(table.columns) if column.title == NOTE), None)
    footnotes: dict[str, dict[str, Any]] = {}
    panels = []
    for title, rows in table.panels.items():
        run, unrun = ([row for row in rows if _is_unrun(row) == is_unrun] for is_unrun in (False, True))
        for text in (row.values[note].text for row in run if note is not None):
            if text and text not in footnotes:
                number = len(footnotes) + 1
                footnotes[text] = {"number": number, "id": f"note-{table.name}-{number}", "text": text}
        own = [i for i in range(len(table.columns)) if i != note]
        own, unrun_columns = ([i for i in own if i == 0 or _has_text(part, i)] for part in (run, unrun))
        lacks = "" if note is None else _common(unrun, note)
        if note is not None and not lacks:
            unrun_columns.append(note)
        shown = {
            "run": _shown(table, run, own, table.lead, footnotes, note),
            "unrun": _shown(table, unrun, unrun_columns),
        }
        panels.append({"title": title, "lacks": lacks, **shown})
    return {
        "name": table.name,
        "title": table.title,
        "notes": table.notes,
        "panels": panels,
        "footnotes": [*footnotes.values()],
    }


def _is_unrun(row: Row) -> bool:
    return any(value.text in (rule.NOT_RUN, rule.ELSEWHERE) for value in row.values)


def _has_text(rows: Sequence[Row], column: int) -> bool:
    """Check whether a column has contents in these rows."""
    return any(row.values[column].text not in ("", rule.UNJUDGED, rule.NOT_RUN, rule.ELSEWHERE) for row in rows)


def _shown(
    table: Table,
    rows: Sequence[Row],
    kept: Sequence[int],
    lead: Sequence[str] = (),
    footnotes: Mapping[str, Mapping[str, Any]] | None = None,
    note: int | None = None,
) -> dict[str, Any]:
    """Convert rows with the columns `kept`; columns without a rank are details, which are hidden at first."""
    columns = [table.columns[i] for i in kept]
    ranks = {place: rank for rank, place in enumerate(leading(columns, lead))}
    kinds = [
        ("n" if column.numeric else "text") + " detail" * (place not in ranks) for place, column in enumerate(columns)
    ]
    spreads = [any(row.values[i].spread for row in rows) for i in kept]
    shown = []
    for row in rows:
        fields = zip((row.values[i] for i in kept), kinds, spreads, strict=True)
        cells = [
            {"value": value, "kind": kind, "spread": spread, "order": _order(value)} for value, kind, spread in fields
        ]
        own = (footnotes or {}).get(row.values[note].text) if note is not None else None
        shown.append({"cells": cells, "apart": row.apart, "note": own})
    heads = [
        {"title": column.title, "kind": kind, "rank": ranks.get(place), "hint": _hint(column)}
        for place, (column, kind) in enumerate(zip(columns, kinds, strict=True))
    ]
    grouped = groups(columns) if any(column.group for column in columns) else []
    over = [{"title": group, "width": n, "hint": columns[first].key or meaning(group)} for group, first, n in grouped]
    # an empty first field means that the text above it also applies to this row
    sorts = len(rows) > 2 and all(row.values[0].text for row in rows)
    return {"columns": heads, "groups": over, "rows": shown, "sorts": sorts}


def _hint(column: Column) -> str:
    return meaning(column.title) if column.group else column.key or meaning(column.title)


def _common(rows: Sequence[Row], note: int) -> str:
    """Return the note that all rows have, such as "needs a GPU"; "" if their notes differ."""
    lacking = {row.values[note].text for row in rows}
    return lacking.pop() if len(lacking) == 1 else ""


def _order(value: Value) -> float | None:
    """Return the number that a field is sorted by; None if it is sorted as text."""
    try:
        return float(value.text.replace(",", ""))
    except ValueError:
        return None


def _scripts(drawn: bool) -> list[dict[str, str | Markup]]:
    scripts = [{"type": "text/plain", "id": "datatables", "text": _datatables()}]
    if drawn:
        scripts.append({"type": "module", "text": _vega()})
    return [*scripts, {"type": "module", "text": Markup(_template("report.js"))}]


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _datatables() -> Markup:
    return Markup(resources.files("itables").joinpath("html/dt_bundle.js").read_text(encoding="utf-8"))


@cache
def _vega() -> Markup:
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _json(value: Any) -> Markup:
    """Return JSON for a script element, with `<` escaped, so that `</script` and `<!--` do not end the element."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))
