"""Hydra's launcher for the jobs of a multirun: each job is a separate process with its own devices.

A job's cell is in outputs/, and the cell's name ends with the job's settings. If the cell exists and was made by the
same configuration, inputs and code, the job has nothing to do.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from pipelines.app.stage import make_ready
from pipelines.config.environment import JOB_REPORT, JOB_SUFFIX, PROGRESS
from pipelines.config.errors import one_line
from pipelines.execute.progress import StudyProgress
from pipelines.execute.repro import require_processors
from pipelines.executors.devices import gpus_here, needed
from pipelines.executors.executor import Engine, engine
from pipelines.study.adhoc import cell_suffix
from retable.core.artifacts import read_json
from retable.core.errors import UsageError

_NOT_OF_THE_CELL = ("logger", "sweep")  # config groups whose choice does not change a cell's numbers


@dataclass
class Job:
    """A job: its number, its settings and its result.

    Attributes:
        suffix: the end of the name of the job's cell.
        code: the exit code; None until the job ends.
        report: the facts that the job reported: its cell, and the step at which it was pruned.
    """

    number: int
    overrides: Sequence[str]
    label: str
    log: Path
    gpus: int = 0
    processes: int = 1
    suffix: str = ""
    code: int | None = None
    seconds: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:  # `StudyProgress` reads `name`, `address` and `steps`
        return self.label

    @property
    def address(self) -> str:
        return str(self.number)

    @property
    def steps(self) -> Path:
        return self.log.with_suffix(".steps")

    @property
    def cell(self) -> Path | None:
        return Path(self.report["cell"]) if "cell" in self.report else None

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics of the job's cell, or {} if the job has no finished cell."""
        return read_json(self.cell / "metrics.json") if self.cell is not None and self.code == 0 else {}

    def problem(self) -> str:
        """Return the last error line of the job's log; if there is no error line, the log's last line."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        lines = [line for line in lines if line.strip()]
        return ([line for line in lines if line.startswith("error: ")] or lines or ["it printed nothing"])[-1].strip()


class Processes(Launcher):
    """The launcher `hydra/launcher=processes`: runs jobs in parallel on an engine of pipelines/executors/.

    Attributes:
        environment: environment variables that all jobs get.
    """

    def __init__(self, n_jobs: int | None, engine: str):
        if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
            raise UsageError(f"hydra.launcher.n_jobs={n_jobs} must be at least 1; write 1 or more, or null")
        self._n_jobs, self._on = n_jobs, engine
        self.environment: dict[str, str] = {}
        self._engine: Engine | None = None
        self._composing = threading.Lock()
        self._stopping = False

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._loader = hydra_context.config_loader
        self.stage = str(config.hydra.job.config_name)
        self.folder = Path(os.path.relpath(str(config.hydra.sweep.dir)))
        self.overrides = [*map(str, config.hydra.overrides.task)]
        self.recipe = config.hydra.runtime.choices.get("recipe")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs to the end, and return the results in the form that Hydra's own sweepers use."""
        jobs = self.checked(job_overrides, initial_job_idx)
        with self.running(len(jobs)):
            self.run(jobs)
        returns = []
        for job in jobs:
            done = JobReturn(overrides=[*job.overrides], working_dir=str(job.cell), task_name=self.stage)
            done.status = JobStatus.COMPLETED if job.code == 0 else JobStatus.FAILED
            done.return_value = job.metrics if job.code == 0 else UsageError(job.problem().removeprefix("error: "))
            returns.append(done)
        return returns

    def checked(
        self, job_overrides: Sequence[Sequence[str]], first: int = 0, swept_settings: Sequence[str] = ()
    ) -> list[Job]:
        """Check that each job can begin, and return the jobs.

        Args:
            job_overrides: the overrides of each job.
            first: number of the first job.
            swept_settings: settings that come first in the cells' names.

        Raises: UsageError: a job's settings are wrong, or two jobs would make the same cell.
        """
        jobs = [self.check(overrides, first + i, swept_settings) for i, overrides in enumerate(job_overrides)]
        places: dict[str, Job] = {}
        for job in jobs:
            if (other := places.setdefault(job.label, job)) is not job:
                raise UsageError(f"jobs {other.number} and {job.number} are the same, {job.label}; remove one job")
        return jobs

    def check(
        self, overrides: Sequence[str], number: int, swept_settings: Sequence[str] = (), suffix: str | None = None
    ) -> Job:
        """Check that a job can begin, and return the job.

        Args:
            overrides: the job's overrides.
            number: the job's number.
            swept_settings: settings that come first in the cell's name.
            suffix: end of the cell's name; None to derive it from the overrides that the name does not contain yet.

        Raises: UsageError: the job's settings are wrong, or the job needs more GPUs than this machine has.
        """
        with self._composing:
            before = HydraConfig.instance().cfg
            try:
                composed = self._loader.load_configuration(self.stage, [*overrides], RunMode.RUN)
                HydraConfig.instance().set_config(composed)
                with flag_override(composed, ["struct", "readonly"], [False, False]):
                    del composed["hydra"]
                raw: Any = OmegaConf.to_container(composed)
                make_ready(self.stage, composed)
            except (UsageError, HydraException, OmegaConfBaseException) as error:
                raise UsageError(f"job {number}, {' '.join(overrides)}: {one_line(error)}") from error
            finally:
                HydraConfig.instance().cfg = before
        place = _interpolated_names("out", raw)
        named = [each for each in overrides if _key(each) not in place and _key(each) not in _NOT_OF_THE_CELL]
        if suffix is None:
            suffix = "".join(cell_suffix({}, part, [*map(_key, part)]) for part in _split_swept(named, swept_settings))
        gpus, processes = needed(composed.get("trainer") or {}, len(self._gpus))
        if self._on == "local" and gpus > len(self._gpus):
            available = len(self._gpus)
            write = f"trainer.devices={available}" if available else "trainer=cpu"
            raise UsageError(f"job {number} needs {gpus} GPUs, but {available} are available; write {write}")
        label = f"{composed.out}{suffix}"
        return Job(number, overrides, label, self.folder / f"{number}.log", gpus, processes, suffix)

    @cached_property
    def _gpus(self) -> list[str]:
        return gpus_here()

    @contextlib.contextmanager
    def running(self, total: int) -> Iterator[None]:
        """Start the engine and the progress display of `total` jobs; at the block's end, stop jobs that still run."""
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._stopping = False
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # set here, since the engine imports libraries that read it
        try:
            with (
                StudyProgress(f"sweep {self.folder}", total, console) as self._progress,
                engine(self._on, self._n_jobs) as self._engine,
            ):
                require_processors(self._engine)
                self.devices = self._engine.devices
                try:
                    yield
                finally:
                    self._stopping = True
        finally:
            self._engine = None

    def run(self, jobs: Sequence[Job]) -> None:
        """Run jobs in parallel, as devices become free."""
        in_parallel(self.run_one, jobs, self.devices.jobs, self.refresh)

    def refresh(self) -> None:
        """Update the progress of running jobs."""
        self._progress.refresh()

    def run_one(self, job: Job, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run a job to its end. If this process is stopped, the job's exit code stays None.

        `variables` are added to the job's environment.
        """
        assert self._engine is not None
        # If the engine allocates devices itself, this process reserves no devices: the job waits in the engine for its
        # devices.
        required = (0, 0) if self._engine.allocates else (job.gpus, job.processes)
        with self.devices.taken(*required) as own:
            if self._stopping:
                return
            job.log.parent.mkdir(parents=True, exist_ok=True)
            report = job.log.with_suffix(".json")
            report.unlink(missing_ok=True)
            for_all = {**os.environ, PROGRESS: str(job.steps.resolve())}
            environment = for_all | self.environment | own | dict(variables)
            environment |= {JOB_SUFFIX: job.suffix, JOB_REPORT: str(report.resolve())}
            self._progress.begins(job)
            began = time.monotonic()
            devices, module = job.gpus or job.processes, f"pipelines.{self.stage}"
            job.code = self._engine.run(
                module, job.overrides, environment, job.log.resolve(), devices, gpus=job.gpus > 0
            )
            if self._stopping:  # the job did not fail, and can be resumed
                job.code = None
                return
            job.seconds = time.monotonic() - began
            job.report = read_json(report) if report.exists() else {}
            report.unlink(missing_ok=True)
            self._progress.ends(job, job.seconds, self._remark(job))

    def _remark(self, job: Job) -> str:
        if job.code != 0:
            return f"failed: {job.problem().removeprefix('error: ')}; log: {job.log}"
        if "pruned" in job.report:
            return f"pruned at step {job.report['pruned']}"
        return "exists already" if job.report.get("there") else ""


def in_parallel(work: Any, items: Sequence[Any], at_a_time: int, now_and_then: Any = lambda: None) -> None:
    """Call `work` on each item in threads, and `now_and_then` every half second.

    After the first exception, or a signal to the main thread, no further item is started. Running threads continue
    until the processes for which they wait have ended.
    """
    threads = ThreadPoolExecutor(max(at_a_time, 1))
    waiting: set[Future[None]] = {threads.submit(work, item) for item in items}
    try:
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            now_and_then()
            for each in done:
                each.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _split_swept(overrides: Sequence[str], swept_settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split overrides into overrides of swept settings and all other overrides."""
    first = [each for each in overrides if _key(each) in swept_settings]
    return first, [each for each in overrides if each not in first]


def _interpolated_names(name: str, raw: Mapping[str, Any]) -> set[str]:
    """Return the settings and groups that a setting's interpolations refer to, directly or indirectly."""
    keys, waiting = set[str](), [name]
    while waiting:
        if (key := waiting.pop()) not in keys:
            keys.add(key)
            text = raw.get(key)
            inner = (
                re.findall(r"[A-Za-z_][\w.]*", " ".join(re.findall(r"\$\{.*\}", text))) if isinstance(text, str) else []
            )
            waiting += [each.removeprefix("runtime.choices.") for each in inner]
            # If `system` is not set, stage.make_ready derives it from the recipe.
            waiting += ["recipe"] if key == "system" and text is None else []
    return keys


def swept_keys(overrides: Sequence[str]) -> list[str]:
    """Return the settings that a command line sweeps over."""
    parsed = OverridesParser.create().parse_overrides([*overrides])
    return [each.key_or_group for each in parsed if each.is_sweep_override()]
