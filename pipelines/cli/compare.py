"""`retable compare`: compare two systems or cells by scores, or two studies or commits by tables."""

import sys
from pathlib import Path

import pandas as pd

from pipelines.config.project import DEFAULT, STUDIES, study_names
from pipelines.study.compose import conf
from retable.core.errors import UsageError
from retable.reporting.changes import aggregates, changes, changes_table, is_commit, tables_at, tables_of
from retable.reporting.comparison import compare
from retable.reporting.markup import markdown_table
from retable.reporting.page import report_page
from retable.reporting.results import COLUMNS
from retable.reporting.tables import rows_tables


def print_comparison(a: str, b: str, metric: str | None, study: str | None) -> None:
    """Print, in Markdown, the scores of two systems or cells, or the differences of two studies or commits.

    Args:
        a, b: systems, cells, studies or commits.
        metric: the only metric to compare; allowed for systems and cells only.
        study: the study whose records are read; None for the cells in outputs/.
    """
    studies = {*study_names()}
    if not {a, b} & studies and not (is_commit(a) and is_commit(b)):
        rows = compare(a, b, metric, str(STUDIES / study) if study in studies else study)
        for table, _ in rows_tables("compare", conf().tables()["compare"], rows):
            print(markdown_table(table, folded=False))
        return
    if metric is not None:
        raise UsageError("--metric applies to systems and cells; remove --metric to compare all tables of a study")
    folder = STUDIES / next((each for each in (study, a, b) if each in studies), DEFAULT) / "results"
    after, before = (
        tables_of(STUDIES / each / "results") if each in studies else tables_at(each, folder) for each in (a, b)
    )
    frame = changes(aggregates(before.values()), aggregates(after.values()))
    table = changes_table(frame, {"before": b, "after": a})
    title = f"{a} against {b}"
    page = Path("work/compare", f"{title.replace(' ', '-').replace('/', '-')}.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        report_page(f"Study {title}", "", table.notes[0], pd.DataFrame(columns=COLUMNS), [table], {}, {}), "utf-8"
    )
    print(markdown_table(table, folded=False))
    print(f"wrote {page}", file=sys.stderr)
