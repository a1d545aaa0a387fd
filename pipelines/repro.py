"""A study, from nothing to its tables: `retable repro smoke --jobs 2`, or `make repro STUDY=smoke JOBS=2`.

DVC runs each stage and keeps what it leaves, as with `dvc repro`. But stages that don't wait for each other run side by
side, a thread each (unless OMP_NUM_THREADS says otherwise), and start as forks of a process that has the libraries
loaded. Those that train on other devices than a processor take turns. With another engine than the local one they run
on the machines of a cluster, while DVC stays here. What is interrupted goes on from there when the command is given
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
from threading import Lock
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from pipelines.engines import DEVICES, GIVING_ON, Engine, engine, taking
from pipelines.forks import forked, write_python
from pipelines.locks import forget_killed, write_only_what_is_new, write_whole
from pipelines.plan import conf, graph, study_here
from pipelines.project import CODE, CONF, STUDY, enter_project, files_of_study, own_conf
from retable.digests import digest, digest_of
from retable.errors import UsageError
from retable.plan.cell import Cell
from retable.plan.conf import Conf
from retable.plan.study import Study
from retable.training.signals import leave

LOGS = Path("work/log")
PLANNING = ("plan", "project")  # the files of pipelines/ that params.yaml and dvc.yaml are made by


@dataclass
class Stage:
    """A stage of DVC's.

    Attributes:
        before: the addresses of those that make what it reads.
        devices: that it takes, as an engine is told.
        reports: of a report, its page, which names the runs behind its numbers, and which DVC doesn't know of.
    """

    address: str  # as `dvc repro` takes it
    name: str
    reads: list[str]
    outs: list[str]
    changed: bool
    devices: str = taking(1)
    takes_turns: bool = False
    reports: Path | None = None
    before: set[str] = field(default_factory=set)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name.replace(' ', '/')}.txt"

    @property
    def steps(self) -> Path:
        """Where its training says how far it is: `step/steps`."""
        return self.log.with_suffix(".steps")

    def did(self) -> str:
        """What DVC did, by the line that it has for it; nothing where it ran the stage."""
        said = self.log.read_text(encoding="utf-8", errors="replace")
        if re.search(r"^Running stage '.*':$", said, re.MULTILINE):
            return ""
        cached = re.search(r"^Stage '.*' is cached - skipping run", said, re.MULTILINE)
        return "from the cache" if cached else "no change"

    def problem(self) -> str:
        """What its log says last, but for DVC's word that it failed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        of_dvc = ("ERROR: failed to repro", "Running stage '")
        said = [line for line in lines if line.strip() and not line.startswith(of_dvc)]
        errors = [line for line in said if line.startswith("error: ")]
        return (errors or said or ["it left no word"])[-1].strip()


def repro(study: str | None, jobs: int | None = None, on: str = "local") -> int:
    """Make a study, `jobs` stages at a time, by the engine that it is made `on`; the exit code."""
    given_in = Path.cwd()
    enter_project(study)
    runner = engine(on, jobs)
    started = time.monotonic()
    found = study_here()
    refresh_graph()
    stages = to_run(stages_of(found))
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def left() -> set[str]:
        return {stage.address for stage in to_run(stages_of(found))}

    failed, ran = run(found.name, stages, runner, console, left) if stages else ([], [])
    report = Path(f"{files_of_study()}results", "report.md")
    if not failed:
        print(headline(report.read_text(encoding="utf-8")))
    for stage in failed:
        console.print(Text.assemble(("failed", "red"), f" {stage.name}: {stage.problem()}"))
        console.print(Text(f"  all it said: {stage.log}; alone: dvc repro --single-item {stage.address}"))
    took = f"{len(ran)} of {len(stages)} stages run in {_duration(time.monotonic() - started)}"
    page = os.path.relpath(report.with_suffix(".html"), given_in)
    print(f"{took if stages else 'Nothing to do'}. The report: {page}" if not failed else took)
    return 1 if failed else 0


def refresh_graph() -> None:
    """Write the study's `params.yaml` and `dvc.yaml` again if what they are made of has changed."""
    confs = [path for folder in filter(None, (CONF, own_conf())) for path in sorted(folder.rglob("*.yaml"))]
    said = [*confs, Path(f"{files_of_study()}{STUDY}")]
    code = [*sorted(CODE["retable"].glob("plan/*.py")), *(CODE["pipelines"] / f"{name}.py" for name in PLANNING)]
    stamp = Path("work/graph.txt")

    def state() -> str:
        sources = [*said, *code, *filter(Path.exists, map(Path, ("dvc.yaml", "params.yaml")))]
        return digest_of([{str(path): digest(path) for path in sources}, _files_there(said)])

    if not stamp.exists() or stamp.read_text(encoding="utf-8") != state():
        graph()
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(state(), encoding="utf-8")


def _files_there(said: Sequence[Path]) -> list[str]:
    """The paths that configurations name and that are there: a text of one's own is an input once it is."""
    named = {path for file in said for path in re.findall(r"[\w./+-]*[\w+-][./][\w./+-]+", file.read_text("utf-8"))}
    return sorted(path for path in named if os.path.exists(path))


def stages_of(study: Study) -> list[Stage]:
    """The stages of the study that the working folder is the DVC project of. UsageError for a data set that one reads
    and that does not exist."""
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
                    f"{missing} does not exist, and study {study.name} reads it for {each.name}; put the data sets "
                    "in data/, or link their folder there: `ln -s FOLDER data`"
                )
            runs = page if each.name == "report" else None
            stages.append(
                Stage(
                    each.addressing.removeprefix("dvc.yaml:"),
                    each.name.replace("@", " "),
                    reads,
                    outs,
                    each.changed() or (runs is not None and not runs.exists()),
                    taking(1) if cell is None else _devices(cell, project_conf),
                    cell is not None and not cell.settings.get("trainer", "cpu").startswith("cpu"),
                    runs,
                )
            )
    maker = {out: stage.address for stage in stages for out in stage.outs}
    for stage in stages:
        read = (path for file in stage.reads for path in (file, *map(str, Path(file).parents)))
        stage.before = {maker[path] for path in read if path in maker}
    return stages


def _devices(cell: Cell, conf: Conf) -> str:
    """What an engine is told of what a cell's training takes."""
    trainer = conf.says("trainer", cell.settings.get("trainer", "cpu"))
    trainer = trainer | {key.rpartition(".")[2]: value for key, value in cell.settings.items() if "trainer." in key}
    devices, nodes = (str(trainer.get(name, 1)) for name in ("devices", "num_nodes"))
    n = int(devices) if devices.isdigit() else 1  # auto: of those that the engine gives it
    return taking(0 if cell.stage in GIVING_ON else n, trainer.get("accelerator", "auto") != "cpu", int(nodes))


def to_run(stages: Sequence[Stage]) -> list[Stage]:
    """Those that have changed, and those that wait for these, however far behind; each behind what it waits for."""
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
    """Run stages on an engine; those that failed, and those in which DVC found something to do. What doesn't wait for a
    failed one runs all the same. A report is written again with the runs that its numbers come from. `left` returns the
    addresses of the stages that remain to be run once there are new plans: most cells keep theirs."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ |= {"RETABLE_STUDY": study, "RETABLE_DATA": "data", "SHELL": "/bin/sh"}
    waiting, failed, ran = list(stages), list[Stage](), list[Stage]()
    done = {address for stage in stages for address in stage.before} - {stage.address for stage in stages}
    running: dict[int, tuple[Stage, int, float]] = {}  # by the descriptor that tells a process's end
    with ending(running), on as runner, StudyProgress(f"study {study}", len(stages), console) as progress:
        require_processors(runner)
        python = Path(runner.address).with_name("python")
        write_python(python, runner.address)
        os.environ["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        while waiting or running:
            busy = not runner.hands_out and any(stage.takes_turns for stage, _, _ in running.values())
            ready = (each for each in waiting if each.before <= done and not (busy and each.takes_turns))
            if len(running) < runner.slots and (stage := next(ready, None)):
                waiting.remove(stage)
                runs, new = stage.reports, any(each.name != "plan" for each in ran)
                pid = start(stage, force=runs is not None and (new or not runs.exists()))
                running[os.pidfd_open(pid)] = stage, pid, time.monotonic()
                progress.begins(stage)
                continue
            if not running:  # the rest waits for what failed
                break
            for end in select.select(list(running), [], [], 0.5)[0]:
                stage, pid, since = running.pop(end)
                os.close(end)
                succeeded = os.waitpid(pid, 0)[1] == 0
                did = stage.did()
                ran += [stage] if did == "" else []
                progress.ends(stage, time.monotonic() - since, did if succeeded else "failed")
                if succeeded and stage.name == "plan":
                    remaining = left()
                    done |= {each.address for each in (stage, *waiting) if each.address not in remaining}
                    waiting = [each for each in waiting if each.address in remaining]
                    progress.drops_to(len(waiting))
                elif succeeded:
                    done.add(stage.address)
                else:
                    failed.append(stage)
            progress.goes_on()
    return failed, ran


def require_processors(runner: Engine) -> None:
    """UsageError for an engine that would run nothing: a cluster whose nodes have no processors."""
    if runner.slots < 1:
        raise UsageError("the engine has no processors; start nodes that have, or write --jobs 2")


@contextlib.contextmanager
def ending(running: Mapping[int, tuple[Stage, int, float]]) -> Iterator[None]:
    """Wait, whatever happens, for the processes of DVC: they end behind the stages that the server of forks ends."""
    try:
        yield
    finally:
        for _, pid, _ in running.values():
            os.waitpid(pid, 0)


def start(stage: Stage, force: bool) -> int:
    """The id of the process in which DVC runs a stage, if there is something to do, or by `force`."""
    stage.log.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(stage.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def work() -> None:
        from dvc.cli import main

        leave()
        write_whole()
        write_only_what_is_new()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ |= {"RETABLE_PROGRESS": str(stage.steps.resolve()), DEVICES: stage.devices}
        sys.exit(main(["--wait-for-lock", "repro", "--single-item", *["--force"] * force, stage.address]))

    pid = forked(work)
    os.close(log)
    return pid


class Shown(Protocol):
    """What progress is shown of: its name, what tells it from others, and where it says how far it is: `step/steps`."""

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def steps(self) -> Path: ...


class StudyProgress:
    """How far a study is, or a sweep: a line a stage that ended; in a terminal, bars of those that run."""

    def __init__(self, what: str, total: int, console: Console):
        columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}")]
        self._bars = Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True,
            disable=not console.is_terminal, refresh_per_second=4,
        )  # fmt: skip
        self._total, self._ended = total, 0
        self._study = self._bars.add_task(what, total=total, figures=f"stage 0 of {total}")
        self._stages: dict[str, tuple[Path, TaskID]] = {}  # where each says its steps, and its bar
        self._lock = Lock()  # of these, for a sweep's jobs begin and end in threads of their own

    def __enter__(self) -> "StudyProgress":
        self._bars.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bars.stop()

    def drops_to(self, waiting: int) -> None:
        """Count only so many stages besides those that ended."""
        with self._lock:
            self._total = self._ended + waiting
            self._bars.update(self._study, total=self._total)

    def begins(self, stage: Shown) -> None:
        with self._lock:
            stage.steps.unlink(missing_ok=True)
            task = self._bars.add_task(f"  {stage.name}", total=None, figures="")
            self._stages[stage.address] = stage.steps, task

    def goes_on(self) -> None:
        with self._lock:
            for steps, task in self._stages.values():
                if steps.exists() and (found := re.fullmatch(r"(\d+)/(\d+)", steps.read_text(encoding="utf-8"))):
                    at, of = map(int, found.groups())
                    self._bars.update(task, completed=at, total=of, figures=f"step {at} of {of}")

    def ends(self, stage: Shown, seconds: float, remark: str) -> None:
        with self._lock:
            self._ended += 1
            steps, task = self._stages.pop(stage.address)
            steps.unlink(missing_ok=True)
            self._bars.remove_task(task)
            self._bars.update(self._study, completed=self._ended, figures=f"stage {self._ended} of {self._total}")
            width = len(str(self._total))
            line = f"[{self._ended:>{width}}/{self._total}] {seconds:6.1f} s  {stage.name}"
            self._bars.console.print(Text(f"{line}  {remark}".rstrip()))


def headline(report: str) -> str:
    """The first table of a report."""
    found = re.search(r"^### .*?(?=\n### |\Z)", report, re.DOTALL | re.MULTILINE)
    return f"{found[0].strip()}\n" if found else report


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.1f} s" if round(seconds, 1) < 60 else f"{minutes} min {rest} s"
