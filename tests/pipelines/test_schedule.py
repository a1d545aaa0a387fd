"""Test that the cells of a study and the jobs of a sweep share GPUs: on a machine with four fake GPUs, no GPU is used
twice at a time, cells for two GPUs are not overtaken for ever, and a killed study resumes.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from dvc.repo import Repo
from rich.console import Console

from pipelines.config.project import CONF
from pipelines.execute import repro
from pipelines.execute.launcher import Job, Processes
from pipelines.executors import executor
from pipelines.executors.devices import Devices, gpus_here, needed
from pipelines.executors.executor import Engine
from retable.planning.cell import Cell
from retable.planning.conf import Conf
from tests.pipelines.conftest import PATHS

GPUS = ["2", "3", "5", "7"]  # as in CUDA_VISIBLE_DEVICES=2,3,5,7
SEVERAL = ("c3", "c4")  # cells that need two GPUs
CELLS = [f"c{number}" for number in range(10)]


class Run(NamedTuple):
    """A cell that ran: its GPUs, and the times of its start and end."""

    name: str
    gpus: frozenset[str]
    start: float
    end: float


# A script that appends the start of a cell to a file and, after some seconds, its end.
RECORD = """
import os, sys, time
file, name, seconds = sys.argv[1:]
for event in ("start", "end"):
    with open(file, "a") as log:
        log.write(f"{name} {event} {time.time()} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
    time.sleep(float(seconds) * (event == "start"))
"""


def recorded(file: Path, killed: float = float("inf")) -> list[Run]:
    """Return the recorded cells in the order of their starts. Cells without an end were killed at `killed`."""
    started, runs = dict[str, tuple[float, str]](), list[Run]()
    for line in file.read_text(encoding="utf-8").splitlines():
        name, event, moment, gpus = line.split(" ")
        if event == "start":
            if name in started:  # it was killed
                runs.append(Run(name, frozenset(started[name][1].split(",")), started[name][0], killed))
            started[name] = float(moment), gpus
        else:
            start, _ = started.pop(name)
            runs.append(Run(name, frozenset(gpus.split(",")), start, float(moment)))
    assert not started
    return sorted(runs, key=lambda run: run.start)


def require_schedule(runs: list[Run]) -> None:
    """Check that each cell had its number of GPUs, no two cells had the same GPU at a time, and all GPUs were used."""
    for run in runs:
        assert len(run.gpus) == (2 if run.name in SEVERAL else 1) and run.gpus <= {*GPUS}, run
    for i, run in enumerate(runs):
        assert not [other for other in runs[i + 1 :] if other.start < run.end and other.gpus & run.gpus], run
    assert {gpu for run in runs for gpu in run.gpus} == {*GPUS}


def most_at_once(runs: list[Run]) -> int:
    """Return the largest number of GPUs that were busy at one time."""
    return max(sum(len(other.gpus) for other in runs if other.start <= run.start < other.end) for run in runs)


@pytest.mark.parametrize(("visible", "n_gpus", "names"), [
    (None, 2, ["0", "1"]),
    (None, 0, []),
    ("2,3", 2, ["2", "3"]),
    ("2, 9,3", 1, ["2"]),  # CUDA shows the devices before the first name that is not one
    ("GPU-1b3f,GPU-9a2c", 2, ["GPU-1b3f", "GPU-9a2c"]),
    ("MIG-41ad,MIG-52be", 1, ["MIG-41ad", "MIG-52be"]),  # CUDA shows a process one of them
    ("MIG-41ad", 0, []),
    ("", 0, []),
    ("0,1", 0, []),  # a torch without CUDA
])  # fmt: skip
def test_the_gpus_are_those_that_the_user_left_visible(visible, n_gpus, names, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_here() == names


def test_a_job_for_several_devices_is_not_overtaken():
    devices = Devices(GPUS[:2], processors=2, jobs=9)
    first = devices.take("one", 1, 1)
    assert devices.take("two", 2, 2) is None and devices.take("later", 1, 1) is None
    cpu = devices.take("cpu", 0, 1)
    assert (first.variables, cpu.variables) == ({"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": ""})
    assert devices.take("cores", 0, 2) is None and devices.take("core", 0, 1) is None
    devices.give_back(first)
    assert devices.take("later", 1, 1) is None
    two = devices.take("two", 9, 9)  # more than there are
    assert {*two.gpus} == {*GPUS[:2]}
    devices.give_back(two)
    devices.give_back(cpu)
    assert devices.take("later", 1, 1).gpus and devices.take("cores", 0, 2).processors == 2
    assert Devices([], 2, 1).take("cpu", 0, 1).variables == {}  # the environment stays as it is


NEEDS = {  # the cells' settings, and their GPUs and processes on a machine with four GPUs and without
    "pretrain/c/lstm": ({"recipe": "recurrent/lstm"}, (1, 1), (0, 1)),
    "pretrain/c/two": ({"recipe": "recurrent/lstm", "trainer.devices": "2"}, (2, 2), (0, 2)),
    "pretrain/c/gpt2": ({"recipe": "transformer/gpt2_124m_500"}, (4, 4), (0, 1)),
    "pretrain/c/gpt2_one": ({"recipe": "transformer/gpt2_124m", "trainer": "gpu"}, (1, 1), (1, 1)),
    "pretrain/c/bert_base": ({"recipe": "bert/bert_base"}, (4, 4), (0, 1)),
    "pretrain/c/bert_small": ({"recipe": "bert/bert_small"}, (1, 1), (0, 1)),
    "pretrain/c/ddp": ({"recipe": "recurrent/lstm", "trainer": "ddp"}, (4, 4), (0, 1)),
    "pretrain/c/cpu": ({"recipe": "recurrent/lstm", "trainer": "cpu_bf16"}, (0, 1), (0, 1)),
    "pretrain/c/named": ({"recipe": "recurrent/lstm", "trainer.devices": "[2]"}, (3, 1), (0, 1)),
    "pretrain/c/of_study": ({"recipe": "bert/bert_small", "gpus": "2"}, (2, 2), (0, 2)),
    "pretrain/c/kn5": ({"recipe": "counted/kn5"}, (0, 1), (0, 1)),
    "embed/c/words": ({"recipe": "vectors/skipgram"}, (0, 1), (0, 1)),
    "embed/c/on_gpu": ({"recipe": "vectors/skipgram", "trainer": "gpu"}, (1, 1), (1, 1)),
    "pretrain/c/kn5_gpu": ({"recipe": "counted/kn5", "trainer": "gpu"}, (1, 1), (1, 1)),
    "embed/c/batches": ({"recipe": "vectors/skipgram", "word_by_word": "false"}, (1, 1), (0, 1)),
    "from_scratch/c/nb": ({"recipe": "classifiers/mnb_bi"}, (0, 1), (0, 1)),
    "from_scratch/c/bilstm": ({"recipe": "encoders/bilstm"}, (1, 1), (0, 1)),
    "prepare/c": ({"corpus": "c"}, (0, 1), (0, 1)),
    "scaling/layers/cuda": ({"device": "cuda"}, (1, 1), (1, 1)),
    "evaluate/c/lstm": ({"cell": "c/lstm"}, (1, 1), (0, 1)),
    "evaluate/c/kn5": ({"cell": "c/kn5"}, (0, 1), (0, 1)),
    "evaluate/c/words": ({"stage": "embed", "cell": "c/words"}, (0, 1), (0, 1)),
    "evaluate/c/mixed": ({"stage": "mix", "cell": "c/mixed"}, (1, 1), (0, 1)),
    "mix/c/mixed": ({}, (1, 1), (0, 1)),
}  # fmt: skip


def test_what_each_cell_needs():
    cells = {}
    for place, (settings, *_) in NEEDS.items():
        stage, _, out = place.partition("/")
        made_from = [f"{settings.get('stage', 'pretrain')}/{settings['cell']}"] if "cell" in settings else []
        made_from = ["pretrain/c/kn5", "pretrain/c/lstm"] if stage == "mix" else made_from
        cells[place] = Cell(stage, out, settings, made_from=tuple(made_from))
    conf = Conf(CONF)
    trainers = {place: repro._trainer(cell, cells, conf) for place, cell in cells.items()}
    found = {place: [needed(trainer, 4), needed(trainer, 0)] for place, trainer in trainers.items()}
    assert found == {place: needs for place, (_, *needs) in NEEDS.items()}


def stage(name: str) -> repro.Stage:
    trainer = {"accelerator": "auto", "devices": 2 if name in SEVERAL else 1}
    return repro.Stage(name, name, [], [], changed=True, trainer=trainer)


def test_a_study_runs_a_cell_on_each_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stages = [stage(name) for name in CELLS]

    def start(stage, runner, reserved, force):
        stage.log.parent.mkdir(parents=True, exist_ok=True)
        stage.log.write_text("Running stage 'x':\n", encoding="utf-8")
        gpus = reserved.variables["CUDA_VISIBLE_DEVICES"]
        arguments = ["-S", "-c", RECORD, str(tmp_path / "log"), stage.name, "0.5"]
        return os.posix_spawn(sys.executable, [sys.executable, *arguments], {"CUDA_VISIBLE_DEVICES": gpus})

    monkeypatch.setattr(repro, "start", start)
    monkeypatch.setattr(repro, "listen", lambda: None)
    engine = Engine("/nowhere", Devices(GPUS, 4, 4), 4)
    failed, ran = repro.run("x", stages, contextlib.nullcontext(engine), Console(file=io.StringIO()), set)
    runs = recorded(tmp_path / "log")
    assert not failed and sorted(each.name for each in ran) == sorted(run.name for run in runs) == CELLS
    require_schedule(runs)
    assert most_at_once(runs) == len(GPUS)
    order = [run.name for run in runs]
    assert all(order.index(name) < order.index("c5") for name in SEVERAL)


def test_a_sweep_runs_a_job_on_each_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(GPUS))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(GPUS))
    monkeypatch.setattr(executor, "server", lambda: contextlib.nullcontext("/nowhere"))

    def run(self, module, arguments, environment, log, devices, gpus):
        assert gpus and devices == len(environment["CUDA_VISIBLE_DEVICES"].split(","))
        done = [sys.executable, "-S", "-c", RECORD, str(tmp_path / "log"), *arguments, "0.5"]
        return subprocess.run(done, env={"CUDA_VISIBLE_DEVICES": environment["CUDA_VISIBLE_DEVICES"]}).returncode

    monkeypatch.setattr(Engine, "run", run)
    sweep = Processes(None, "local")
    sweep.folder, sweep.stage = tmp_path, "pretrain"
    counts = {name: 2 if name in SEVERAL else 1 for name in CELLS}
    jobs = [Job(i, [name], name, tmp_path / f"{i}.log", n, n) for i, (name, n) in enumerate(counts.items())]
    with sweep.running(len(jobs)):
        sweep.run(jobs)
    assert {job.code for job in jobs} == {0}
    require_schedule(runs := recorded(tmp_path / "log"))
    assert most_at_once(runs) == len(GPUS)


# The command `repro` on a machine whose torch counts four GPUs, with cells that only record their devices.
COMMAND = """
import sys
import torch
torch.cuda.device_count = lambda: 4
from rich.console import Console
from pipelines.execute import repro
from pipelines.executors.executor import engine
from retable.planning.cell import Cell
from retable.planning.study import Study
settings = {name: {"recipe": "recurrent/lstm"} for name in sys.argv[1].split(",")}
for name in sys.argv[2].split(","):
    settings[name]["trainer.devices"] = "2"
cells = [Cell("pretrain", f"c/{name}", each) for name, each in settings.items()]
study = Study("many", {cell.place: cell for cell in cells}, {})
stages = repro.to_run(repro.stages_of(study))
failed, _ = repro.run("many", stages, engine("local"), Console(stderr=True), set)
sys.exit(len(failed))
"""


@pytest.mark.long
def test_a_killed_study_resumes_and_runs_no_finished_cell_again(tmp_path):
    Repo.init(str(tmp_path), no_scm=True).close()
    (tmp_path / "study.yaml").touch()
    (tmp_path / "record.py").write_text(RECORD, encoding="utf-8")
    (tmp_path / "command.py").write_text(COMMAND, encoding="utf-8")
    stages = {}
    for name in CELLS:
        out = f"outputs/pretrain/c/{name}"
        stages[name] = {"cmd": f"python record.py log {name} 3 && mkdir -p {out}", "outs": [out]}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, PATHS)), "CUDA_VISIBLE_DEVICES": ",".join(GPUS)}
    command = [sys.executable, "command.py", ",".join(CELLS), ",".join(SEVERAL)]
    first = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    lock, log = tmp_path / "dvc.lock", tmp_path / "log"

    def is_running() -> bool:
        lines = log.read_text(encoding="utf-8").splitlines()
        return sum(" start " in line for line in lines) > sum(" end " in line for line in lines)

    while first.poll() is None and not (len(finished_in(lock)) >= 3 and is_running()):
        time.sleep(0.05)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    killed, finished = time.time(), finished_in(lock)
    assert len(finished) < len(CELLS)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert finished_in(lock) == {*CELLS}
    runs = recorded(log, killed)
    require_schedule(runs)
    assert not finished & {run.name for run in runs if run.start > killed}
    assert {run.name for run in runs if run.start <= killed} - finished  # some cells were killed
    order = [run.name for run in runs if run.start <= killed]
    assert all(order.index(name) < order.index("c5") for name in SEVERAL if "c5" in order)


def finished_in(lock: Path) -> set[str]:
    return {*(yaml.safe_load(lock.read_text(encoding="utf-8")) or {}).get("stages", {})} if lock.exists() else set()
