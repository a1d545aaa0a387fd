"""Write reports of folders in the format of stages, without records."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retable.reporting import report
from retable.reporting.markup import Table
from retable.reporting.provenance import write_runs
from retable.reporting.results import Result, read_result


def read(folders: Mapping[str, Iterable[Path]]) -> dict[str, list[Result]]:
    """Read the results in folders, by stage."""
    return {stage: [*map(read_result, listed)] for stage, listed in folders.items()}


def write_report(study: str, folders: Mapping[str, Iterable[Path]], out: Path, *more: Any, **facts: Any) -> list[Table]:
    """Write a report of these folders, and `runs.csv`, into `out`, as stage `report` does."""
    results = read(folders)
    out.mkdir(parents=True, exist_ok=True)
    tables = report.write_report(study, results, out, *more, **facts)
    cells = {result.name: result for listed in results.values() for result in listed}
    write_runs(cells.values(), {name: each.record for name, each in cells.items() if each.record}, out)
    return tables
