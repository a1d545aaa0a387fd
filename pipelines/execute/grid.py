"""The grid sweeper, and the code that all sweepers share: the parent run in MLflow, the metric and the results.

A finished sweep's folder contains `trials.csv`, `report.md` and `report.html`.
"""

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from pipelines.config.conf import in_mlflow
from pipelines.config.environment import PARENT_RUN
from pipelines.execute.launcher import Job, Processes, in_parallel
from retable.core.artifacts import write_json
from retable.core.errors import UsageError, closest

if TYPE_CHECKING:
    import pandas as pd

LEDGER, SWEEP_FILE = "trials.csv", "sweep.json"
LOWER = ("loss", "perplexity", "bits", "error")  # words in names of metrics for which lower is better


class Sweep(Sweeper):
    """The base class of this project's sweepers.

    Args:
        metric: the metric by which jobs are compared. If `metric` is None, jobs are compared by validation/loss or, if
            no job has validation/loss, by the first validation metric in alphabetical order.
        direction: minimize or maximize; None to derive it from the metric's name.
        params: values to sweep over, in addition to values on the command line: {optimizer.lr: "1e-3,1e-2"}.
    """

    def __init__(self, metric: str | None, direction: str | None, params: Mapping[str, Any] | None):
        if direction not in (None, "minimize", "maximize"):
            raise UsageError(f"hydra.sweeper.direction={direction} is unknown; write minimize or maximize")
        self._metric, self._direction, self._params = metric, direction, dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        if not config.hydra.launcher._target_.startswith("hydra_plugins.retable."):
            raise UsageError("hydra/launcher=basic runs all jobs in one process; remove hydra/launcher=basic")
        plugin: Any = Plugins.instance().instantiate_launcher(hydra_context, task_function, config)
        self.launcher: Processes = plugin.inner
        self.settings = config

    def parsed(self, arguments: Sequence[str]) -> list[Override]:
        """Parse `params` and the command line; of several overrides of a setting, the last is used."""
        overrides = [f"{key}={value}" for key, value in self._params.items()] + [*arguments]
        parsed = OverridesParser.create().parse_overrides(overrides)
        return [*{each.get_key_element(): each for each in parsed}.values()]

    def metric_of(self, jobs: Sequence[Job]) -> str:
        """Return the metric by which jobs are compared.

        Raises: UsageError: a successful job lacks the configured metric.
        """
        names = dict.fromkeys(name for job in jobs for name in job.metrics)
        if self._metric is not None:
            for job in jobs:
                if job.code == 0 and self._metric not in job.metrics:
                    write = closest(self._metric, sorted(job.metrics)) if job.metrics else "sweep the stage evaluate"
                    raise UsageError(
                        f"hydra.sweeper.metric={self._metric}: {job.cell} does not have this metric; {write}"
                    )
            return self._metric
        validation = sorted(name for name in names if name.startswith("validation/"))
        return "validation/loss" if "validation/loss" in names or not validation else validation[0]

    def lower_is_better(self, metric: str) -> bool:
        if self._direction is not None:
            return self._direction == "minimize"
        return any(word in metric for word in LOWER)


class Grid(Sweep):
    """The sweeper `hydra/sweeper=grid`, which runs every combination of the swept values."""

    def sweep(self, arguments: list[str]) -> Any:
        parsed = self.parsed(arguments)
        if open_ := next((each for each in parsed if each.is_sweep_override() and not each.is_discrete_sweep()), None):
            raise UsageError(f"{open_.input_line} is an interval; write a list of values, or hydra/sweeper=optuna")
        settings = [each.get_key_element() for each in parsed if each.is_sweep_override()]
        jobs = self.launcher.checked([*combinations(parsed)], swept_settings=settings)
        self.launcher.folder.mkdir(parents=True, exist_ok=True)
        with parent_run(self.settings, self.launcher, settings), self.launcher.running(len(jobs)):
            in_parallel(self._run, jobs, self.launcher.devices.jobs, self.launcher.refresh)
        metric = self.metric_of(jobs)
        rows = [row_of(job, settings, metric) for job in jobs]
        leave(self.launcher, rows, metric, self.lower_is_better(metric))
        if failed := [job for job in jobs if job.code != 0]:
            print(f"{len(failed)} of {len(jobs)} jobs failed; run the same command to retry them", file=sys.stderr)
            sys.exit(1)
        return None

    def _run(self, job: Job) -> None:
        """Run a job. Raise UsageError at once if the job lacks the metric, so that no further jobs start."""
        self.launcher.run_one(job)
        self.metric_of([job])


def combinations(parsed: Sequence[Override]) -> Iterator[list[str]]:
    """Yield the command line of each combination of swept values, in Hydra's order."""
    choices = [
        [f"{each.get_key_element()}={value}" for value in each.sweep_string_iterator()]
        if each.is_sweep_override()
        else [each.input_line or ""]
        for each in parsed
    ]
    return map(list, product(*choices))


def row_of(job: Job, settings: Sequence[str], metric: str) -> dict[str, Any]:
    """Return a job's row of `trials.csv`."""
    values = {key: value for key, _, value in (override.partition("=") for override in job.overrides)}
    state = "complete" if job.code == 0 else "failed"
    value = job.metrics.get(metric, math.nan)
    facts = {"trial": job.number, "state": state, "value": value, "step": math.nan, "seconds": round(job.seconds, 1)}
    return facts | {"cell": str(job.cell or "")} | {key: values[key] for key in settings}


def leave(launcher: Processes, rows: Sequence[Mapping[str, Any]], metric: str, lower: bool) -> None:
    """Write a sweep's results to its folder, and print the sweep's table and best trial.

    Args:
        launcher: the launcher that ran the jobs.
        rows: the rows of `trials.csv`.
        metric: the metric by which jobs are compared.
        lower: whether lower values are better.
    """
    import pandas as pd

    from retable.reporting.markup import markdown_table
    from retable.reporting.sweeps import best_of, sweep_table, write_sweep

    folder, stage = launcher.folder, launcher.stage
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SWEEP_FILE, {"stage": stage, "overrides": launcher.overrides, "recipe": launcher.recipe})
    trials = pd.DataFrame(rows, dtype=object)  # dtype object keeps integers next to missing values
    trials = trials.astype({"value": float, "step": float, "seconds": float})
    trials = trials.assign(metric=metric, direction="minimize" if lower else "maximize")
    begun = folder / f"{LEDGER}.begun"
    trials.to_csv(begun, index=False, lineterminator="\n")
    begun.replace(folder / LEDGER)
    page = write_sweep(f"{stage} {folder.name}", {folder.name: trials}, folder)
    print(markdown_table(sweep_table(trials), folded=False))
    if (best := best_of(trials)) is not None:
        print(f"best: {best['cell']}, {metric} {best['value']:.4f}; write it to its recipe: retable adopt {folder}")
    print(f"report: {page}")


def show(sweeps: Sequence[str]) -> None:
    """Print the tables of finished sweeps, and write a page that compares them."""
    from retable.reporting.markup import markdown_table
    from retable.reporting.sweeps import read_trials, sweep_table, write_sweep

    folders = [*map(sweep_folder, sweeps)]
    alike = len({folder.name for folder in folders}) < len({*folders})
    by_name = {
        "-".join(folder.parts[-2:]) if alike else folder.name: read_trials(folder / LEDGER) for folder in folders
    }
    if len(metrics := {trials["metric"].iloc[0] for trials in by_name.values()}) > 1:
        raise UsageError(
            f"these sweeps have different metrics, {' and '.join(sorted(metrics))}; write sweeps with the same metric"
        )
    for name, trials in by_name.items():
        print(markdown_table(sweep_table(trials, name), folded=False))
    out = folders[0] if len(folders) == 1 else Path("work/sweeps", "-".join(by_name)[:100])
    print(f"report: {write_sweep(' and '.join(by_name), by_name, out)}")


@contextlib.contextmanager
def parent_run(config: DictConfig, launcher: Processes, settings: Sequence[str]) -> Iterator[Any]:
    """Open the sweep's run in MLflow, which is the parent of all jobs' runs. A resumed sweep continues the same run.

    Yields None if the jobs are not logged to MLflow.
    """
    arguments = [*config.hydra.overrides.task]
    if not in_mlflow(config, arguments):
        yield None
        return
    from retable.core import artifacts
    from retable.tracking.run import RunSpec, start
    from retable.training.signals import Stopped

    tags = {f"retable.{k}": str(v) for k, v in artifacts.git_state().items()} | {"retable.stage": "sweep"}
    name = f"sweep {launcher.stage} {' '.join(settings)}".strip()
    run = start(RunSpec(name, str(launcher.folder), {"overrides": " ".join(arguments)}, tags))
    if run.id is not None:
        launcher.environment[PARENT_RUN] = run.id
    try:
        yield run
    except Stopped:
        run.stop()
        raise
    except BaseException:
        run.fail()
        raise
    run.finish({}, [])


def read_texts(folder: Path) -> "pd.DataFrame":
    """Read a sweep's `trials.csv` as text; by default pandas would read `null` as a missing value."""
    import pandas as pd

    return pd.read_csv(folder / LEDGER, dtype=str, keep_default_na=False)


def sweep_folder(path: str) -> Path:
    """Return the relative path of a sweep's folder; raise UsageError if the folder has no `trials.csv`."""
    folder = Path(os.path.relpath(path or "."))
    if not (folder / LEDGER).exists():
        known = sorted(str(path.parent) for path in Path("multirun").glob(f"*/*/{LEDGER}"))
        advice = f"write one of {', '.join(known)}" if known else "run a sweep first"
        raise UsageError(f"{path} has no {LEDGER}; {advice}")
    return folder
