"""Stages ended at any moment, by `kill -9` or asked to, and run again: nothing is lost, doubled or left behind.

CHAOS_SEED and CHAOS_ENDS (how many, of all stages together) make it another or a longer try: the nightly one has 300.
"""

import importlib
import json
import os
import random
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow.entities import RunStatus
from mlflow.tracking import MlflowClient

from pipelines.forks import LIBRARIES, become, forked
from retable.digests import digest

pytestmark = pytest.mark.chaos
ROOT = Path(__file__).parent.parent.parent
SEED, ENDS = int(os.environ.get("CHAOS_SEED", 1)), int(os.environ.get("CHAOS_ENDS", 12))
SECONDS = 300  # a stage that takes longer hangs
SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 99}

TINY = ["corpus=grammar_tiny"]
LSTM = [*TINY, "recipe=recurrent/lstm", "model.d_model=16", "model.dropout=0.2", "batches.batch_size=4",
        "batches.length=16", "epochs=0.4", "checkpoint_every=3", "validations=5"]  # fmt: skip
STAGES = [
    ["prepare", *TINY, "corpus.write.words={train: 3000, validation: 600, test: 900}",
     "corpus.write.task_examples={train: 60, validation: 20, test: 40}"],
    ["encode", *TINY],
    ["pretrain", *TINY, "recipe=counted/kn5"],
    ["pretrain", *LSTM],
    ["pretrain", *LSTM, "seed=2", "trainer=ddp", "trainer.accelerator=cpu"],
    ["pretrain", "-m", *LSTM, "seed=3,4", "epochs=0.1", "hydra.sweep.dir=multirun/seeds"],
    ["embed", *TINY, "recipe=vectors/skipgram", "epochs=1"],
    ["mix", *TINY, "cells=[pretrain/grammar_tiny/kn5-1,pretrain/grammar_tiny/lstm-1]", "system=both"],
    ["evaluate", *TINY, "stage=pretrain", "cell=grammar_tiny/lstm-1", "benchmark=perplexity"],
    ["generate", "stage=pretrain", "cell=grammar_tiny/lstm-1", "n_prompts=3"],
    ["train", *TINY, "task=sentiment", "recipe=encoders/bilstm", "epochs=2", "checkpoint_every=2"],
]  # fmt: skip


class End(NamedTuple):
    """At which of the times that a process touches files or the store it gets a signal; None for never."""

    moment: int | None = None
    number: signal.Signals = signal.SIGKILL


NEVER = End()


class Project:
    """A folder that stages run in, each a fork of this process."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.said, self.touched = folder.parent / f"{folder.name}.txt", folder.parent / f"{folder.name}.touched"

    def run(self, stage: str, *overrides: str, end: End = NEVER) -> int:
        for file in (self.said, self.touched):
            file.write_text("", encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
        }  # fmt: skip

        def work() -> None:
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)
            sys.addaudithook(Fate(end, self.touched))
            become(f"pipelines.{stage}", [*overrides], str(self.folder), environment, str(self.said), str(self.said),
                   sys.executable)  # fmt: skip

        pid = forked(work)
        ended = os.pidfd_open(pid)
        if not select.select([ended], [], [], SECONDS)[0]:
            os.killpg(pid, signal.SIGKILL)
            pytest.fail(f"{stage} hangs, which was to get {end}")
        os.close(ended)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def files(self) -> dict[str, str]:
        """The digests of what the stages leave, but for the records of when and where."""
        made = (path for folder in ("outputs", "multirun") for path in (self.folder / folder).rglob("*"))
        kept = (path for path in made if path.is_file() and not path.name.endswith((".record.json", ".log")))
        ours = (path for path in kept if ".hydra" not in path.parts and path.name != "multirun.yaml")
        return {str(path.relative_to(self.folder)): digest(path) for path in ours}

    def runs(self) -> Iterator[tuple[str, str, Any]]:
        """Of each run its name, its status, and what stands in it: metrics with their steps, and files."""
        client = MlflowClient(f"sqlite:///{self.folder / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("retable")
        for run in client.search_runs([experiment.experiment_id]):
            points = {
                name: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
            }
            files = sorted(file.path for file in client.list_artifacts(run.info.run_id))
            yield f"{run.data.tags['retable.stage']} {run.info.run_name}", run.info.status, (points, files)


class Fate:
    """Counts, as an audit hook, the times that files are made, moved or removed, or the store is asked."""

    def __init__(self, end: End, touched: Path):
        self._end, self._touched, self._count, self._pid = end, touched, 0, os.getpid()

    def __call__(self, event: str, arguments: Any) -> None:
        if os.getpid() != self._pid or not touches(event, arguments):
            return
        self._count += 1
        if self._end.moment is None:
            with open(self._touched, "r+b", buffering=0) as file:
                file.write(f"{self._count:12}".encode())
        elif self._count == self._end.moment:
            (os.killpg if self._end.number == signal.SIGKILL else os.kill)(self._pid, self._end.number)


def touches(event: str, arguments: Any) -> bool:
    if event == "open":
        path, _, flags = arguments
        return isinstance(path, str) and not path.endswith(".touched") and bool(flags & (os.O_WRONLY | os.O_RDWR))
    return event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "sqlite3.connect")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Project, list[int]]:
    """All stages undisturbed, and how often each touches files."""
    for name in LIBRARIES:  # once, not in each fork
        importlib.import_module(name)
    project, touched = Project(tmp_path_factory.mktemp("whole")), []
    for stage in STAGES:
        assert project.run(*stage) == 0, project.said.read_text(encoding="utf-8")
        touched.append(int(project.touched.read_text(encoding="utf-8")))
    return project, touched


def test_ended_anywhere_and_run_again_is_as_undisturbed(whole, tmp_path):
    undisturbed, touched = whole
    project, draw = Project(tmp_path / "disturbed"), random.Random(SEED)
    project.folder.mkdir()
    ends = [sum(n % len(STAGES) == i for n in range(ENDS)) for i in range(len(STAGES))]
    for stage, times, n in zip(STAGES, touched, ends, strict=True):
        for _ in range(n):
            end = End(draw.randint(1, times), draw.choice([*SIGNALS]))
            code, said = project.run(*stage, end=end), project.said.read_text(encoding="utf-8")
            early = -end.number  # what the system makes of it, where the stage doesn't listen yet
            assert code in (0, SIGNALS[end.number], early), f"{stage} with {end}: {code}\n{said}"
            assert "Traceback" not in said, f"{stage} with {end}\n{said}"
            print(f"{end.number.name} at {end.moment} of {times}: {' '.join(stage)[:100]}")
        code, said = project.run(*stage), project.said.read_text(encoding="utf-8")
        assert code == 0, f"{stage}\n{said}"
        assert left(project.folder / "work") == [], stage
    assert project.files() == undisturbed.files()
    finished = RunStatus.to_string(RunStatus.FINISHED)
    mine, theirs = ({name: rest for name, *rest in each.runs()} for each in (project, undisturbed))
    assert all(status == finished for _, status, _ in project.runs())
    assert len([*project.runs()]) == len([*undisturbed.runs()])
    assert json.dumps(mine, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def left(work: Path) -> list[Path]:
    """Of scratch and locks: logs may stay."""
    return sorted(path for path in work.glob("*") if path.name != "log")
