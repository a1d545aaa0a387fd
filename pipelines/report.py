"""Write a study's records, tables, figures and report: `python -m pipelines.report` in the study's folder.

The stage first writes `records/` from the cells. Then the stage renders `results/` from the records only, as `retable
report` does. With `tries=[CELL,…]`, the report also shows the listed cells, and is written to `work/report/`.
"""

from pathlib import Path

from omegaconf import DictConfig

from pipelines.app.rendering import render, write_records
from pipelines.app.stage import stage
from pipelines.study.compose import set_study
from retable.core.artifacts import read_run
from retable.reporting.results import Result, read_result, result_folders


@stage
def report(cfg: DictConfig) -> None:
    study = set_study()
    if not cfg.tries:
        write_records(study)
        from pipelines.app.mlflow_run import describe_study

        page = render(study)
        describe_study(study, page)
        print(f"wrote {page}")
        return
    tries: dict[str, list[Result]] = {}
    for place in cfg.tries:
        cell = Path("outputs", place)
        tries.setdefault(read_run(cell)["stage"], []).extend(map(read_result, result_folders(cell)))
    print(f"wrote {render(study, tries)}")


if __name__ == "__main__":
    report()
