"""Write the plans of a study's cells: `python -m pipelines.plan` in the study's folder. This is DVC's stage `plan`.

A plan contains a cell's configuration and the fingerprint of the code that the cell depends on. A cell whose plan and
inputs do not change is not run again. `params.yaml` and `dvc.yaml` must exist: `retable graph` writes them.
"""

import shutil
from pathlib import Path

from pipelines.config.errors import one_line_errors
from pipelines.config.project import CODE
from pipelines.study.code_reached import code, entry_points_of
from pipelines.study.compose import as_yaml, composing, conf, mistakes_of, plan_of, set_study
from pipelines.study.dvc_project import MEASURED
from retable.core.digests import digest, digest_of
from retable.planning.graph import REPORT_PLAN
from retable.planning.study import Study


def plan() -> None:
    """Write the plans of the study's cells and the plan of the study's report."""
    study = set_study()
    shutil.rmtree("outputs/plan", ignore_errors=True)
    with composing():
        for cell in study.cells.values():
            path = Path(cell.plan)
            path.parent.mkdir(parents=True, exist_ok=True)
            with mistakes_of(cell):
                path.write_text(plan_of(cell, study.cells), encoding="utf-8")
    Path(REPORT_PLAN).write_text(report_plan(study), encoding="utf-8")


def report_plan(study: Study) -> str:
    """Return, as YAML, everything that a report depends on except its cells.

    The report's code includes the code of tasks and benchmarks, because tasks and benchmarks define the metrics.
    """
    tables = conf().tables()
    chosen = {(group, name) for cell in study.cells.values() for group in MEASURED for name in cell.choices(group)}
    measured = [conf().read(*each) for each in sorted(chosen)]
    content = {"study": study.name, "cells": sorted(study.cells), "said": dict(study.reported), "tables": tables}
    content["code"] = code().fingerprint(entry_points_of("report", tables, measured))
    texts = CODE["retable"] / "reporting"  # the fingerprint covers Python code only
    files = [texts / "references.yaml", *texts.glob("templates/*")]
    content["texts"] = digest_of({path.name: digest(path) for path in files})
    return as_yaml(content)


def main() -> None:
    with one_line_errors():
        plan()


if __name__ == "__main__":
    main()
