"""The jobs of a multirun: each is a process of its own, as if its command had been given alone, on devices of its own.

`Processes` is Hydra's launcher for them. A job's cell stands in outputs/ like any other, under a name that says what
the job sets; where it is there already, made by the same configuration, inputs and code, the job has nothing to do.
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
from pipelines.executors.executor import Engine, engine
from pipelines.study.adhoc import called
from retable.core.artifacts import read_json
from retable.core.errors import UsageError

_NOT_OF_THE_CELL = ("logger", "sweep")  # groups that change no number


@dataclass
class Job:
    """A job: its number, what it sets, and what came of it.

    suffix: how the name of its cell ends.
    code: the exit code; None as long as it has none.
    told: what it said of itself: its cell, and where it was pruned the step.
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
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:  # this and the next two as StudyProgress shows them
        return self.label

    @property
    def address(self) -> str:
        return str(self.number)

    @property
    def steps(self) -> Path:
        return self.log.with_suffix(".steps")

    @property
    def cell(self) -> Path | None:
        return Path(self.told["cell"]) if "cell" in self.told else None

    @property
    def metrics(self) -> dict[str, float]:
        """Of its cell, where it has made one."""
        return read_json(self.cell / "metrics.json") if self.cell is not None and self.code == 0 else {}

    def problem(self) -> str:
        """What it said last."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        said = [line for line in said if line.strip()]
        return ([line for line in said if line.startswith("error: ")] or said or ["it left no word"])[-1].strip()


class Devices:
    """What jobs share: GPUs, none for two jobs at a time, and processors. At most `jobs` have some at a time."""

    def __init__(self, gpus: Sequence[str], processors: int, jobs: int):
        self._gpus, self._free, self._jobs = [*gpus], processors, jobs
        self.processors, self.jobs = processors, jobs
        self._freed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, gpus: int, processes: int) -> Iterator[dict[str, str]]:
        """Wait for as many; the environment that gives a job its own. A job of more processes than there are processors
        has all of these."""
        processors = 0 if gpus else min(processes, self.processors)
        with self._freed:
            self._freed.wait_for(lambda: self._jobs > 0 and len(self._gpus) >= gpus and self._free >= processors)
            own, self._gpus = self._gpus[:gpus], self._gpus[gpus:]
            self._jobs -= 1
            self._free -= processors
        try:
            yield {"CUDA_VISIBLE_DEVICES": ",".join(own)} if own else {}
        finally:
            with self._freed:
                self._gpus += own
                self._jobs += 1
                self._free += processors
                self._freed.notify_all()


class Processes(Launcher):
    """`hydra/launcher=processes`: jobs side by side, by an engine of pipelines/executors/.

    environment: what all jobs are told beside their command.
    """

    def __init__(self, n_jobs: int | None, engine: str):
        if n_jobs is not None and (not isinstance(n_jobs, int) or n_jobs < 1):
            raise UsageError(f"hydra.launcher.n_jobs={n_jobs} runs nothing; write 1 or more, or null")
        self._n_jobs, self._on = n_jobs, engine
        self.environment: dict[str, str] = {}
        self._engine: Engine | None = None
        self._composing = threading.Lock()
        self._stopping = False

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._loader = hydra_context.config_loader
        self.stage = str(config.hydra.job.config_name)
        self.folder = Path(os.path.relpath(str(config.hydra.sweep.dir)))
        self.said = [*map(str, config.hydra.overrides.task)]
        self.recipe = config.hydra.runtime.choices.get("recipe")

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs to their end; what Hydra's own sweepers take of them."""
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

    def checked(self, job_overrides: Sequence[Sequence[str]], first: int = 0, swept: Sequence[str] = ()) -> list[Job]:
        """The jobs, once it is sure that each could begin. UsageError, which names the job, else, and where two would
        make one cell. What is `swept` comes first in their names."""
        jobs = [self.check(overrides, first + i, swept) for i, overrides in enumerate(job_overrides)]
        places: dict[str, Job] = {}
        for job in jobs:
            if (other := places.setdefault(job.label, job)) is not job:
                raise UsageError(f"jobs {other.number} and {job.number} are the same, {job.label}; leave one out")
        return jobs

    def check(self, overrides: Sequence[str], number: int, swept: Sequence[str] = (), suffix: str | None = None) -> Job:
        """A job, once it is sure that it could begin; UsageError else. Its cell's name ends with `suffix`, or by
        default with all that the command line sets and the name doesn't say already."""
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
        place = _behind("out", raw)
        named = [each for each in overrides if _key(each) not in place and _key(each) not in _NOT_OF_THE_CELL]
        if suffix is None:
            suffix = "".join(called({}, part, [*map(_key, part)]) for part in _parted(named, swept))
        gpus, processes = self._needs(composed.get("trainer") or {})
        if self._on == "local" and gpus > len(self._gpus):
            there = len(self._gpus)
            write = f"trainer.devices={there}" if there else "trainer=cpu"
            raise UsageError(f"job {number} asks for {gpus} GPUs, and there are {there}; write {write}")
        label = f"{composed.out}{suffix}"
        return Job(number, overrides, label, self.folder / f"{number}.log", gpus, processes, suffix)

    def _needs(self, trainer: Mapping[str, Any]) -> tuple[int, int]:
        """How many GPUs, and processes, a training takes, or a stage that uses a system."""
        accelerator, devices = str(trainer.get("accelerator", "cpu")), trainer.get("devices", 1)
        on_gpus = accelerator in ("gpu", "cuda") or (accelerator == "auto" and len(self._gpus) > 0)
        every = len(self._gpus) if on_gpus else 1
        count = len(devices) if OmegaConf.is_list(devices) else every if devices == "auto" else int(devices)
        return (count, count) if on_gpus else (0, count)

    @cached_property
    def _gpus(self) -> list[str]:
        """Those of this machine, or what CUDA_VISIBLE_DEVICES leaves of them, as that names them."""
        if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
            return [each for each in visible.split(",") if each.strip() not in ("", "-1")]
        import torch

        return [str(i) for i in range(torch.cuda.device_count())]

    @contextlib.contextmanager
    def running(self, total: int) -> Iterator[None]:
        """Within it jobs can be run, `total` in all; at its end, whatever ended it, they are asked to end."""
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._stopping = False
        try:
            with (
                StudyProgress(f"sweep {self.folder}", total, console) as self._progress,
                engine(self._on, self._n_jobs) as self._engine,
            ):
                require_processors(self._engine)
                processors = len(os.sched_getaffinity(0))
                jobs = self._n_jobs or max(self._engine.slots, len(self._gpus))
                self.devices = Devices(self._gpus, processors, jobs)
                try:
                    yield
                finally:
                    self._stopping = True
        finally:
            self._engine = None

    def run(self, jobs: Sequence[Job]) -> None:
        """Run jobs side by side, as far as there are devices."""
        in_parallel(self.run_one, jobs, self.devices.jobs, self.goes_on)

    def goes_on(self) -> None:
        """Show how far those that run are."""
        self._progress.goes_on()

    def run_one(self, job: Job, told: Mapping[str, str] = MappingProxyType({})) -> None:
        """Run a job to its end, or leave it without a code where this is asked to end. `told` is of its environment."""
        assert self._engine is not None
        # An engine that hands devices out has the job wait for its own.
        asked = (0, 0) if self._engine.allocates else (job.gpus, job.processes)
        with self.devices.taken(*asked) as own:
            if self._stopping:
                return
            job.log.parent.mkdir(parents=True, exist_ok=True)
            says = job.log.with_suffix(".json")
            says.unlink(missing_ok=True)
            for_all = {"OMP_NUM_THREADS": "1", **os.environ, PROGRESS: str(job.steps.resolve())}
            environment = for_all | self.environment | own | dict(told)
            environment |= {JOB_SUFFIX: job.suffix, JOB_REPORT: str(says.resolve())}
            self._progress.begins(job)
            began = time.monotonic()
            devices, module = job.gpus or job.processes, f"pipelines.{self.stage}"
            job.code = self._engine.run(
                module, job.overrides, environment, job.log.resolve(), devices, gpus=job.gpus > 0
            )
            if self._stopping:  # what goes on from here is not known to have failed
                job.code = None
                return
            job.seconds = time.monotonic() - began
            job.told = read_json(says) if says.exists() else {}
            says.unlink(missing_ok=True)
            self._progress.ends(job, job.seconds, self._remark(job))

    def _remark(self, job: Job) -> str:
        if job.code != 0:
            return f"failed: {job.problem().removeprefix('error: ')}; all it said: {job.log}"
        if "pruned" in job.told:
            return f"pruned at step {job.told['pruned']}"
        return "there already" if job.told.get("there") else ""


def in_parallel(work: Any, items: Sequence[Any], at_a_time: int, now_and_then: Any = lambda: None) -> None:
    """Do `work` on each item in threads. What the first that fails raises, and a signal to the main thread, ends it at
    once: no item is begun any more, and the threads of those that were end with the processes that they wait for."""
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


def _parted(overrides: Sequence[str], swept: Sequence[str]) -> tuple[list[str], list[str]]:
    """The swept ones, and the others."""
    first = [each for each in overrides if _key(each) in swept]
    return first, [each for each in overrides if each not in first]


def _behind(name: str, raw: Mapping[str, Any]) -> set[str]:
    """The settings and groups that a setting follows from, by what it is composed of."""
    found, waiting = set[str](), [name]
    while waiting:
        if (key := waiting.pop()) not in found:
            found.add(key)
            said = raw.get(key)
            inner = (
                re.findall(r"[A-Za-z_][\w.]*", " ".join(re.findall(r"\$\{.*\}", said))) if isinstance(said, str) else []
            )
            waiting += [each.removeprefix("runtime.choices.") for each in inner]
            waiting += ["recipe"] if key == "system" and said is None else []  # as entry.make_ready fills it in
    return found


def swept(overrides: Sequence[str]) -> list[str]:
    """The settings that a command line gives several values."""
    parsed = OverridesParser.create().parse_overrides([*overrides])
    return [each.key_or_group for each in parsed if each.is_sweep_override()]
