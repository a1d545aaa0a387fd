"""A study's cells → its records, tables, figures and report: `python -m pipelines.report` in the study's folder.

The stage first writes `records/` from the cells; then it renders `results/` from the records only, as `retable report`
does. `against=main`, or another commit, or another study, makes no report: it prints in Markdown what changed since,
and writes it as a page to `work/compare/`. With `tries=[…]` the report has these next to the study's cells, and goes
to `work/report/`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from omegaconf import DictConfig

from pipelines.entry import overrides, stage
from pipelines.plan import conf, set_study
from pipelines.project import STUDIES, STUDY, files_of_study, study_names
from retable.artifacts import read_record, read_run, remote, require
from retable.plan.cell import STAGES, Cell
from retable.plan.conf import comment_of
from retable.plan.graph import keys_of
from retable.plan.shapes import REPORTED
from retable.plan.study import Study
from retable.publishing import WORK, refuse_all_but_a_report, replace
from retable.reporting.comparison import aggregates, compared, comparison_table, tables_at, tables_of
from retable.reporting.markup import markdown_table
from retable.reporting.page import report_page
from retable.reporting.provenance import Making, write_runs
from retable.reporting.records import read_results, write_record
from retable.reporting.report import write_report
from retable.reporting.results import COLUMNS, Result, read_result


@stage
def report(cfg: DictConfig) -> None:
    if cfg.against is not None:
        # as it was said: Hydra takes 12e4567 for a number, and git for a commit
        said = [each.partition("=")[2].strip("'\"") for each in overrides() if each.startswith("against=")]
        compare(said[-1] if said else str(cfg.against))
        return
    study = set_study()
    if not cfg.tries:
        write_records(study)
        print(f"The report is {render(study)}")
        return
    tries: dict[str, list[Result]] = {}
    for place in cfg.tries:
        cell = Path("outputs", place)
        tries.setdefault(read_run(cell)["stage"], []).extend(map(read_result, result_folders(cell)))
    print(f"The report is {render(study, tries)}")


def write_records(study: Study) -> None:
    """Write the record of each cell of the study, and remove those of cells that it no longer has."""
    records = Path(f"{files_of_study()}records")
    paths = {record_of(records, cell): cell for cell in study.cells.values()}
    for path, cell in paths.items():
        plan = yaml.load(require(Path(cell.plan)).read_text(encoding="utf-8"), yaml.CSafeLoader)
        write_record(require(Path("outputs", cell.place)), cell.settings, plan["code"], path)
    for path in records.rglob("*.*"):
        if path.is_file() and path.with_suffix(".json") not in paths:
            path.unlink()


def record_of(records: Path, cell: Cell) -> Path:
    return records / f"{cell.place}.json"


def render(study: Study, tries: dict[str, list[Result]] | None = None) -> Path:
    """Write the tables, figures and the report of a study from its records, with `tries` next to them; its page."""
    root = files_of_study()
    results: dict[str, list[Result]] = {name: [] for name in STAGES}
    for cell in study.cells.values():
        results[cell.stage] += read_results(record_of(Path(f"{root}records"), cell))
    for name, others in (tries or {}).items():
        results[name] += others
    out = Path("work/report") if tries else Path(f"{root}results")
    refuse_all_but_a_report(out)
    sections: dict[str, Any] = {name: study.reported.get(name) for name in REPORTED if name != "bands"}
    keys = keys_of(study)
    makings = {
        cell.place: Making(cell.command, f"{cell.stage}@{keys[place]}", cell.set) for place, cell in study.cells.items()
    }
    cells = {result.name: result for listed in results.values() for result in listed}
    present = {name: found for name in cells if (found := read_record(Path("outputs", name)))}
    sections |= {"rates": study.rates, "makings": makings, "remote": remote()}
    sections["about"] = comment_of(Path(f"{root}{STUDY}"))
    with replace(out, WORK / "report.begun", WORK / "report.replaced") as begun:
        write_report(study.name, results, begun, conf().tables(), present=present, **sections)
        write_runs(cells.values(), present, begun)
    return out / "report.html"


def result_folders(cell: Path) -> Sequence[Path]:
    """Where the metrics of a cell are: in it, or of an evaluation in a folder per benchmark."""
    return [path.parent for path in sorted(cell.glob("*/metrics.json"))] or [cell]


def compare(against: str) -> None:
    """Print what changed of the study since a commit, or next to another study."""
    root = files_of_study()
    study = Path(f"{root}{STUDY}").resolve().parent.name
    own, other = Path(f"{root}results"), STUDIES / against / "results"
    before = tables_of(other) if against in study_names() else tables_at(against, own)
    frame = compared(aggregates(before.values()), aggregates(tables_of(own).values()))
    table = comparison_table(frame, {"before": against, "after": study})
    title = f"{study} against {against}"
    page = Path("work/compare", f"{title.replace(' ', '-').replace('/', '-')}.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(
        report_page(f"Study {title}", "", table.notes[0], pd.DataFrame(columns=COLUMNS), [table], {}, {}), "utf-8"
    )
    print(markdown_table(table))
    print(f"The page: {page}", file=sys.stderr)


if __name__ == "__main__":
    report()
