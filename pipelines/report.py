"""Results → tables, figures and the report: `python -m pipelines.report study=lineage`.

`against=main`, or another commit, or another study, makes no report: it says what changed since, in Markdown, for a
pull request, and leaves it as a page in `work/compare/`. With `tries=[…]` the report has these beside the study's
cells, and stands in `work/report/`.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from pipelines.entry import CONF, overrides, stage
from retable.artifacts import read_run, remote, require
from retable.plan.cell import STAGES
from retable.plan.conf import Conf
from retable.plan.graph import graph_file
from retable.plan.shapes import REPORTED
from retable.plan.study import read_study
from retable.publishing import WORK, replace
from retable.reporting.comparison import aggregates, compared, comparison_table, tables_at, tables_of
from retable.reporting.markup import markdown_table
from retable.reporting.page import report_page
from retable.reporting.provenance import Making
from retable.reporting.report import write_report
from retable.reporting.results import COLUMNS


@stage
def report(cfg: DictConfig) -> None:
    conf = Conf(CONF)
    if cfg.against is not None:
        # as it was said: Hydra takes 12e4567 for a number, and git for a commit
        said = [each.partition("=")[2].strip("'\"") for each in overrides() if each.startswith("against=")]
        compare(cfg.name, said[-1] if said else str(cfg.against), conf)
        return
    study = read_study(conf, cfg.name)
    folders: dict[str, list[Path]] = {name: [] for name in STAGES}
    for cell in study.cells.values():
        for part in cell.choices("benchmark") or [""]:
            folders[cell.stage].append(require(Path("outputs", cell.place, part)))
    for place in cfg.tries:
        folders[read_run(Path("outputs", place))["stage"]] += result_folders(Path("outputs", place))
    out = Path("work/report", cfg.name) if cfg.tries else Path(cfg.results)
    sections: dict[str, Any] = {name: study.reported.get(name) for name in REPORTED if name != "bands"}
    makings = {
        cell.place: Making(cell.command, f"{graph_file(cell.group)}:{cell.name}", cell.set)
        for cell in study.cells.values()
    }
    about = conf.comment("study", study.name)
    sections |= {"rates": study.rates, "makings": makings, "remote": remote(), "about": about}
    with replace(out, WORK / f"report-{study.name}.begun", WORK / f"report-{study.name}.replaced") as begun:
        write_report(study.name, folders, begun, conf.tables(), **sections)
    print(f"The report is {out / 'report.html'}")


def result_folders(cell: Path) -> list[Path]:
    """Where the metrics of a cell stand: in it, or of an evaluation in a folder for each benchmark."""
    return [path.parent for path in sorted(cell.glob("*/metrics.json"))] or [cell]


def compare(study: str, against: str, conf: Conf) -> None:
    """Say what changed of a study since a commit, or beside another study."""
    own, other = Path("results", study), Path("results", against)
    before = tables_of(other) if against in conf.names("study") else tables_at(against, own)
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
