"""Write records of cells, and render tables, figures and the report from these records."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pipelines.config.project import STUDY, files_of_study
from pipelines.study.compose import conf
from retable.core.artifacts import read_record, remote, require
from retable.core.publishing import WORK, refuse_all_but_a_report, replace
from retable.core.stages import STAGES
from retable.planning.cell import Cell
from retable.planning.conf import comment_of
from retable.planning.graph import keys_of
from retable.planning.study import Study, folder_of_more_seeds, more_seeds, read_study
from retable.reporting.figures import write_figure
from retable.reporting.markup import Table, latex_table
from retable.reporting.names import display_name
from retable.reporting.provenance import Making, write_runs
from retable.reporting.records import read_results, write_record
from retable.reporting.report import figures_of_tables, write_report
from retable.reporting.results import Result
from retable.reporting.sweeps import read_trials

NOT_RENDERED = ("bands", "cost", "more_seeds")  # keys of a study that have no section in the report


def write_records(study: Study) -> None:
    """Write the record of each cell of the study, and remove all other records."""
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


def render(study: Study, adhoc_results: dict[str, list[Result]] | None = None) -> Path:
    """Write the report of a study from its records and `adhoc_results`; return the path of the report's page.

    If a study was committed before Retable wrote records, only its figures are drawn again, from the committed tables.
    """
    out = Path("work/report") if adhoc_results else Path(f"{files_of_study()}results")
    refuse_all_but_a_report(out)
    if not adhoc_results and not Path(f"{files_of_study()}records").exists() and (out / "report.md").exists():
        claims = {key: study.reported.get(key) for key in ("label_efficiency", "figure")}
        for name, figure in figures_of_tables(out, **claims).items():
            write_figure(figure, out / f"{name}.svg")
        return out
    with replace(out, WORK / "report.begun", WORK / "report.replaced") as begun:
        write_results(study, adhoc_results or {}, begun)
    return out / "report.html"


def print_latex(study: Study) -> None:
    """Print the tables of a study's report in LaTeX, from its records."""
    with TemporaryDirectory() as folder:
        print("\n".join(map(latex_table, write_results(study, {}, Path(folder)))), end="")


def write_results(study: Study, adhoc_results: dict[str, list[Result]], out: Path) -> list[Table]:
    """Write to `out` the report, tables and figures of the study's records and `adhoc_results`; return the tables."""
    root = files_of_study()
    results: dict[str, list[Result]] = {name: [] for name in STAGES}
    for cell in study.cells.values():
        results[cell.stage] += read_results(record_of(Path(f"{root}records"), cell))
    further = _further_seeds(study, root)
    for path, cell in further.items():
        results[cell.stage] += read_results(path)
    for name, others in adhoc_results.items():
        results[name] += others
    sections: dict[str, Any] = {key: value for key, value in study.reported.items() if key not in NOT_RENDERED}
    keys = keys_of(study)
    makings = {
        cell.place: Making(cell.command, f"{cell.stage}@{keys[place]}", cell.set) for place, cell in study.cells.items()
    }
    makings |= {cell.place: Making(cell.command, "", cell.set) for cell in further.values()}
    cells = {result.name: result for listed in results.values() for result in listed}
    present = {name: record for name in cells if (record := read_record(Path("outputs", name)))}
    sections |= {"rates": study.rates, "makings": makings, "remote": remote()}
    if "sweeps" in sections:
        sections["sweeps"] = {title: read_trials(Path(f"{root}{file}")) for title, file in sections["sweeps"].items()}
    sections["further"] = _seeds_line(study, further.values()) if further else ""
    sections["about"] = comment_of(Path(f"{root}{STUDY}"))
    tables = write_report(study.name, results, out, conf().tables(), present=present, **sections)
    write_runs(cells.values(), present, out)
    return tables


def _further_seeds(study: Study, root: str) -> dict[Path, Cell]:
    """Return the records that add seeds to this study's systems, and the cell of each record.

    The records belong to the study that is named by this study's key `more_seeds`.
    """
    if not (folder := folder_of_more_seeds(study, root)):
        return {}
    cells = more_seeds(study, read_study(conf(), Path(folder, STUDY)))
    return {record_of(Path(folder, "records"), cell): cell for cell in cells}


def _seeds_line(study: Study, cells: Iterable[Cell]) -> str:
    """Return sentences that name the seeds from the study `more_seeds`, and the systems with these seeds."""
    systems: dict[str, set[int]] = {}
    for cell in cells:
        if "seed" in cell.settings:
            systems.setdefault(cell.settings["system"], set()).add(int(cell.settings["seed"]))
    by_seeds: dict[str, list[str]] = {}
    for system, seeds in systems.items():
        by_seeds.setdefault(", ".join(map(str, sorted(seeds))), []).append(system)
    every = {cell.settings["system"] for cell in study.cells.values() if "seed" in cell.settings}
    of = {
        seeds: "all systems" if {*names} == every else "; ".join(map(display_name, names))
        for seeds, names in by_seeds.items()
    }
    source = f"the committed records of study {study.reported['more_seeds']}"
    return " ".join(f"Seeds {seeds} of {names} are from {source}." for seeds, names in of.items())
