"""Run a study's stages and make its tables: `retable repro smoke --jobs 2`, or `make repro STUDY=smoke JOBS=2`.

DVC runs each stage and caches its output, as with `dvc repro`. Independent stages run in parallel, as forks of a
process that has loaded the libraries. Each stage has one thread, unless OMP_NUM_THREADS is set. A stage that computes
on GPUs waits until as many GPUs are free as it needs, and sees only these GPUs. With the engines ray and slurm, stages
run on the machines of a cluster, and DVC runs on this machine. An interrupted study resumes when the command is run
again.
"""

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.text import Text

from pipelines.config import environment
from pipelines.config.patches import dvc_writes_only_what_is_new, dvc_writes_whole
from pipelines.config.project import enter_project, files_of_study
from pipelines.execute.progress import StudyProgress
from pipelines.executors.client import end_with_parent
from pipelines.executors.devices import Reserved, needed
from pipelines.executors.executor import GIVING_ON, Engine, engine, resources
from pipelines.executors.local import forked
from pipelines.study.compose import conf, study_here
from pipelines.study.dvc_lock import forget_killed, only_one
from pipelines.study.dvc_project import refresh_graph
from retable.core.errors import UsageError
from retable.core.stages import USING_STAGES
from retable.planning.cell import Cell
from retable.planning.conf import Conf
from retable.planning.study import Study
from retable.training.signals import deliver, end_at_once, held, leave, listen

LOGS = Path("work/log")
_DEVICES_OF_RECIPE = "${oc.select:gpus,1}"  # in conf/trainer/auto.yaml


@dataclass
class Stage:
    """A stage of the study's `dvc.yaml`.

    Attributes:
        before: addresses of the stages whose outputs this stage reads.
        trainer: settings of the group `trainer`; {} for one CPU process.
        spreads: whether a cluster runs parts of the stage's work, instead of the stage.
        reports: for the stage `report`, the page that it writes; DVC does not track this file. None for other stages.
    """

    address: str  # the stage's name as an argument for `dvc repro`
    name: str
    reads: list[str]
    outs: list[str]
    changed: bool
    trainer: Mapping[str, Any] = field(default_factory=dict)
    spreads: bool = False
    reports: Path | None = None
    before: set[str] = field(default_factory=set)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace(' ', '/')}.txt"

    @property
    def steps(self) -> Path:
        """Return the file to which the stage's training writes its progress, `step/steps`."""
        return self.log.with_suffix(".steps")

    def did(self) -> str:
        """Return what DVC did instead of running the stage, or "" if DVC ran the stage."""
        log = self.log.read_text(encoding="utf-8", errors="replace")
        if re.search(r"^Running stage '.*':$", log, re.MULTILINE):
            return ""
        cached = re.search(r"^Stage '.*' is cached - skipping run", log, re.MULTILINE)
        return "from the cache" if cached else "no change"

    def problem(self) -> str:
        """Return the last error line of the stage's log or, without errors, the last line that DVC did not write."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        of_dvc = ("ERROR: failed to repro", "Running stage '")
        lines = [line for line in lines if line.strip() and not line.startswith(of_dvc)]
        errors = [line for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it printed nothing"])[-1].strip()


def repro(study: str | None, jobs: int | None = None, on: str = "local") -> int:
    """Run a study's stale stages, and print the first table of the study's report.

    Args:
        study: name or folder of the study; None for the working folder's study.
        jobs: number of stages that run at a time; None for one per core or GPU, whichever are more.
        on: the engine: local, ray or slurm.

    Returns: the exit code, 1 if a stage failed.
    """
    working_folder = Path.cwd()
    enter_project(study, show_folder=True)
    runner = engine(on, jobs)
    started = time.monotonic()
    current = study_here()
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def left() -> set[str]:
        return {stage.address for stage in to_run(stages_of(current))}

    with only_one(current.name):
        refresh_graph()
        stages = to_run(stages_of(current))
        failed, ran = run(current.name, stages, runner, console, left) if stages else ([], [])
    end_at_once()
    report = Path(f"{files_of_study()}results", "report.md")
    if not failed:
        print(headline(report.read_text(encoding="utf-8")))
    for stage in failed:
        console.print(Text.assemble(("failed", "red"), f" {stage.name}: {stage.problem()}"))
        console.print(Text(f"  log: {stage.log}; run only this stage: dvc repro --single-item {stage.address}"))
    took = f"{len(ran)} of {len(stages)} stages run in {_duration(time.monotonic() - started)}"
    page = os.path.relpath(report.with_suffix(".html"), working_folder)
    print(f"{took if stages else 'Nothing to do'}. The report: {page}" if not failed else took)
    return 1 if failed else 0


def stages_of(study: Study) -> list[Stage]:
    """Return the stages of the study in the working folder, in DVC's order.

    Raises: UsageError: a stage reads a data set that does not exist.
    """
    from dvc.repo import Repo

    project_conf, cells = conf(), {f"outputs/{place}": cell for place, cell in study.cells.items()}
    page = Path(f"{files_of_study()}results", "report.html")
    stages = []
    with Repo() as repo, repo.lock:
        forget_killed(Path(repo.tmp_dir, "rwlock"))
        for each in repo.index.stages:
            reads, outs = ([os.path.relpath(path.fs_path) for path in paths] for paths in (each.deps, each.outs))
            cell = cells.get(outs[0])
            if missing := next((path for path in reads if path.startswith("data/") and not Path(path).exists()), None):
                raise UsageError(
                    f"{missing} does not exist, but study {study.name} reads it in {each.name}; run `retable fetch "
                    f"--study {study.name}`"
                )
            runs = page if each.name == "report" else None
            stages.append(
                Stage(
                    each.addressing.removeprefix("dvc.yaml:"),
                    each.name.replace("@", " "),
                    reads,
                    outs,
                    each.changed() or (runs is not None and not runs.exists()),
                    _trainer(cell, study.cells, project_conf) if cell else {},
                    cell is not None and cell.stage in GIVING_ON,
                    runs,
                )
            )
    maker = {out: stage.address for stage in stages for out in stage.outs}
    for stage in stages:
        read = (path for file in stage.reads for path in (file, *map(str, Path(file).parents)))
        stage.before = {maker[path] for path in read if path in maker}
    return stages


def _trainer(cell: Cell, cells: Mapping[str, Cell], conf: Conf) -> Mapping[str, Any]:
    """Return a cell's settings of the group `trainer`; {} if the cell is computed in one process on the CPU.

    The settings are read from the files in conf/, because Hydra would take too long. `cells`: all cells, by place.
    """
    settings = cell.settings
    if settings.get("device") == "cuda":  # of the stage `scaling`
        return {"accelerator": "gpu"}
    trainer = dict(conf.read("trainer", settings.get("trainer", "auto")))
    if trainer.get("devices") == _DEVICES_OF_RECIPE:
        of_study = settings.get("gpus")
        trainer["devices"] = (
            _recipe(cell, conf).get("gpus", 1) if of_study is None else yaml.load(of_study, yaml.CSafeLoader)
        )
    own = {key.lstrip("+").partition(".")[2]: text for key, text in settings.items() if "trainer." in key}
    trainer |= {name: yaml.load(text, yaml.CSafeLoader) for name, text in own.items()}
    return {} if trainer.get("accelerator") == "auto" and not _in_batches(cell, cells, conf) else trainer


def _recipe(cell: Cell, conf: Conf) -> dict[str, Any]:
    name = cell.settings.get("recipe")
    return {} if name is None else conf.recipe(Path(name).name)


def _in_batches(cell: Cell, cells: Mapping[str, Cell], conf: Conf) -> bool:
    """Return whether a cell is computed in batches; with the accelerator `auto`, all other cells use the CPU."""
    settings, recipe = cell.settings, _recipe(cell, conf)
    if cell.stage in USING_STAGES:
        systems = (cells[place] for place in cell.made_from if cells[place].stage != "embed")
        return any(_in_batches(each, cells, conf) for each in systems)
    if cell.stage == "embed":
        objective = settings.get("objective") or recipe["choices"].get("objective", "negative_sampling")
        of_files = conf.read("objective", objective) | recipe
        return settings.get("word_by_word", str(of_files["word_by_word"])).lower() == "false"
    # n-grams have no objective; models that are estimated from all examples at once have the learning rate 0
    estimated = recipe.get("objective", {}) is None or recipe.get("finetuning", {}).get("lr") == 0
    return bool(recipe) and not estimated


def to_run(stages: Sequence[Stage]) -> list[Stage]:
    """Return the changed stages and all stages that depend on them, each after its dependencies."""
    known, ordered = {stage.address: stage for stage in stages}, dict[str, Stage]()
    stale: set[str] = set()

    def visit(stage: Stage) -> None:
        if stage.address in ordered:
            return
        for address in sorted(stage.before):
            visit(known[address])
        ordered[stage.address] = stage
        if stage.changed or stage.before & stale:
            stale.add(stage.address)

    for stage in stages:
        visit(stage)
    return [stage for address, stage in ordered.items() if address in stale]


def run(
    study: str,
    stages: Sequence[Stage],
    on: AbstractContextManager[Engine],
    console: Console,
    left: Callable[[], Collection[str]],
) -> tuple[list[Stage], list[Stage]]:
    """Run stages on an engine, in parallel where dependencies allow.

    Stages that do not depend on a failed stage still run. If any cell ran, the stage `report` runs, too.

    Args:
        study: name of the study.
        stages: the stages, each after its dependencies.
        on: a context manager that starts the engine.
        console: the console that shows the progress.
        left: returns the addresses of the stages that still must run. `left` is called after the stage `plan`, which
            usually leaves most plans unchanged.

    Returns: the stages that failed, and the stages that DVC ran instead of restoring their outputs.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {environment.STUDY: study, environment.DATA: "data", "SHELL": "/bin/sh"}
    waiting, failed, ran = list(stages), list[Stage](), list[Stage]()
    done = {address for stage in stages for address in stage.before} - {stage.address for stage in stages}
    running: dict[int, Running] = {}  # keys: file descriptors that signal the end of processes
    listen()
    with ending(running), on as runner, StudyProgress(f"study {study}", len(stages), console) as progress:
        require_processors(runner)
        os.environ["PATH"] = f"{Path(runner.address).parent}{os.pathsep}{os.environ['PATH']}"
        while waiting or running:
            # GPUs should not be idle while stages on the CPU use all jobs.
            on_gpus_first = sorted(waiting, key=lambda each: needed(each.trainer, runner.n_gpus)[0] == 0)
            ready = ((each, reserve(each, runner)) for each in on_gpus_first if each.before <= done)
            stage, reserved = next((each for each in ready if each[1] is not None), (None, None))
            if stage is not None and reserved is not None:
                waiting.remove(stage)
                runs, new = stage.reports, any(each.name != "plan" for each in ran)
                pid = start(stage, runner, reserved, force=runs is not None and (new or not runs.exists()))
                running[os.pidfd_open(pid)] = Running(stage, reserved, pid, time.monotonic())
                progress.begins(stage)
                continue
            if not running:  # all stages that have not run depend on failed stages
                break
            for end in select.select(list(running), [], [], 0.5)[0]:
                stage, reserved, pid, since = running.pop(end)
                os.close(end)
                runner.devices.give_back(reserved)
                succeeded = os.waitpid(pid, 0)[1] == 0
                did = stage.did()
                ran += [stage] if did == "" else []
                progress.ends(stage, time.monotonic() - since, did if succeeded else "failed")
                if succeeded and stage.name == "plan":
                    with held():
                        remaining = left()
                    done |= {each.address for each in (stage, *waiting) if each.address not in remaining}
                    waiting = [each for each in waiting if each.address in remaining]
                    progress.drops_to(len(waiting))
                elif succeeded:
                    done.add(stage.address)
                else:
                    failed.append(stage)
            progress.refresh()
    return failed, ran


class Running(NamedTuple):
    """A stage that DVC runs in a process."""

    stage: Stage
    reserved: Reserved
    pid: int
    since: float


def reserve(stage: Stage, runner: Engine) -> Reserved | None:
    """Reserve the devices that a stage needs on this machine, or return None if the stage must wait for them."""
    required = (0, 0) if runner.allocates else needed(stage.trainer, runner.n_gpus)
    return runner.devices.take(stage.address, *required)


def require_processors(runner: Engine) -> None:
    """Raise UsageError if the engine has no CPU cores, for example on a cluster without worker nodes."""
    if runner.slots < 1:
        raise UsageError("the engine has no CPU cores; start nodes with CPU cores, or write --jobs 2")


@contextlib.contextmanager
def ending(running: Mapping[int, Running]) -> Iterator[None]:
    """At the block's end, wait for DVC's processes. The fork server ends the stages, and then DVC's processes end."""
    try:
        yield
    finally:
        for each in running.values():
            os.waitpid(each.pid, 0)


def start(stage: Stage, runner: Engine, reserved: Reserved, force: bool) -> int:
    """Start DVC on a stage in a fork and return its process id; with `force`, DVC runs even an unchanged stage."""
    gpus, processes = needed(stage.trainer, runner.n_gpus)
    asked = resources(0 if stage.spreads else processes, gpus > 0, stage.trainer.get("num_nodes", 1))
    stage.log.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(stage.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    started_by = os.getpid()

    def work() -> None:
        os.dup2(log, 1)
        os.dup2(log, 2)
        end_with_parent(started_by)
        leave()
        deliver()
        from dvc.cli import main

        dvc_writes_whole()
        dvc_writes_only_what_is_new()
        os.environ |= {environment.PROGRESS: str(stage.steps.resolve()), environment.DEVICES: asked}
        os.environ |= reserved.variables
        sys.exit(main(["--wait-for-lock", "repro", "--single-item", *["--force"] * force, stage.address]))

    with held():  # a signal that arrives before the fork opens its log would print a traceback to the terminal
        pid = forked(work)
    os.close(log)
    return pid


def headline(report: str) -> str:
    """Return the first table of a report."""
    match = re.search(r"^### .*?(?=\n### |\Z)", report, re.DOTALL | re.MULTILINE)
    return f"{match[0].strip()}\n" if match else report


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if round(seconds, 1) < 60 else f"{minutes} min {rest} s"
