"""Test engines, which run the stages of a study and the jobs of a sweep."""

import contextlib
import json
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from pipelines.config.environment import DEVICES, ENGINE
from pipelines.config.project import CONF
from pipelines.execute.repro import require_processors
from pipelines.executors import executor as engines
from pipelines.executors import on_slurm
from pipelines.executors import server as clusters
from pipelines.executors.executor import engine, workers
from pipelines.executors.local import SERVER
from pipelines.executors.server import answer
from retable.core.errors import UsageError

ROOT = CONF.parent

SAYS = "import os, sys; print(*sys.argv[1:], os.environ['SAID'], os.environ['RETABLE_DEVICES']); sys.exit(3)"


def test_a_module_runs_in_the_folder_and_says_its_code(tmp_path, monkeypatch, forks):
    monkeypatch.setenv(SERVER, forks)
    (tmp_path / "says.py").write_text(SAYS, encoding="utf-8")
    (log := tmp_path / "log.txt").write_text("before\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with engine("local", 3) as runner:
        assert runner.slots == 3 and not runner.allocates
        assert runner.run("says", ["a b", "c"], os.environ | {"SAID": "so"}, log, devices=2, gpus=True) == 3
    assert log.read_text(encoding="utf-8") == "before\na b c so 2 gpu 1\n"


@pytest.mark.parametrize(("name", "slots", "message"), [
    ("local", 0, "jobs=0 must be at least 1; write 1 or more"),
    ("cloud", None, "unknown engine 'cloud'; write local, ray or slurm"),
])  # fmt: skip
def test_there_is_a_line_for_a_mistake(name, slots, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        engine(name, slots)


def test_a_cluster_without_processors_runs_nothing(monkeypatch):
    @contextlib.contextmanager
    def started(arguments):
        yield "address", "ready 0 0"

    monkeypatch.setattr(engines, "started", started)
    with pytest.raises(UsageError, match=r"^the engine has no CPU cores; start nodes"), engine("ray") as runner:
        require_processors(runner)
    with engine("ray", 2) as runner:
        require_processors(runner)
        assert runner.allocates and runner.n_gpus == 0


@pytest.mark.parametrize(("lines", "cores", "gpus"), [
    ("0/8/0/8 2 (null)\n", 8, 0),
    ("4/60/0/64 4 gpu:h100:8(S:0-1)\n0/2/0/2 2 gpu:2,mps:100\n", 66, 36),
    ("0/64/0/64 1 gpu:a100:4(S:0),gpu:a100_3g.20gb:2(S:1)\n", 64, 6),
])  # fmt: skip
def test_slurm_counts_cores_and_gpus(lines, cores, gpus, monkeypatch):
    monkeypatch.setattr(on_slurm.shutil, "which", str)
    monkeypatch.setattr(on_slurm.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout=lines))
    cluster = on_slurm.Cluster()
    assert (cluster.slots, cluster.gpus) == (cores, gpus)


class Node:
    """A stand-in for a cluster and its process: the process ignores `end`, and only ends after `kill`."""

    slots = 4

    def __init__(self):
        self.job, self.did = {}, []

    def start(self, job, devices, gpus, nodes):
        self.job, self.did = job, [("start", devices, gpus, nodes)]
        return self

    def poll(self):
        return 143 if "kill" in self.did else None

    def end(self):
        self.did.append("end")

    def kill(self):
        self.did.append("kill")


def asked(tmp_path, devices: str, module: str = "says", **environment: str) -> bytes:
    (tmp_path / "says.py").write_text("import os; print(os.environ['RETABLE_ENGINE'])", encoding="utf-8")
    (log := tmp_path / "log.txt").touch()
    job = {"module": module, "arguments": [], "folder": str(tmp_path), "out": str(log), "err": str(log)}
    return f"{json.dumps(job | {'environment': {**os.environ, DEVICES: devices, **environment}})}\n".encode()


def test_what_gives_work_on_runs_beside_the_server_and_knows_it(tmp_path):
    asks, answers = socket.socketpair()
    asks.sendall(asked(tmp_path, "0 cpu 1"))
    answer(Node(), answers, "4 /address", threading.Event())
    assert asks.recv(10) == b"0\n"
    assert (tmp_path / "log.txt").read_text(encoding="utf-8") == "4 /address\n"


def test_a_connection_without_a_job_is_ignored():
    asks, answers = socket.socketpair()
    asks.close()
    answer(node := Node(), answers, "4 /address", threading.Event())
    assert node.did == []


@pytest.mark.parametrize("ends", ["who asked", "the server"])
def test_what_runs_is_asked_to_end_and_then_killed(ends, tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "PATIENCE", 0.2)
    asks, answers = socket.socketpair()
    asks.sendall(asked(tmp_path, "2 gpu 3", **{ENGINE: "ray"}))
    ended, node = threading.Event(), Node()
    if ends == "the server":
        ended.set()
    else:
        asks.shutdown(socket.SHUT_WR)
    answer(node, answers, "4 /address", ended)
    assert node.did == [("start", 2, True, 3), "end", "kill"] and asks.recv(10) == b"-9\n"
    assert node.job["environment"][ENGINE] == "local"  # a node of a cluster does not have this socket


def test_parts_are_run_by_the_engine_and_a_mistake_in_one_is_told(tmp_path, monkeypatch, forks):
    monkeypatch.setenv(SERVER, forks)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    (tmp_path / "a.txt").write_text("the cat\n", encoding="utf-8")
    with engine("local", 2) as runner:
        monkeypatch.setenv(ENGINE, f"2 {runner.address}")
        with workers(tmp_path) as spread:
            assert spread.n == 2 and spread.folder.is_dir()
            spread("retable.corpora.collection.write_part", [["b.txt", "True", "a.txt"], ["c.txt", "False", "a.txt"]])
            with pytest.raises(UsageError, match=r"^none\.txt does not exist"):
                spread("retable.corpora.collection.write_part", [["d.txt", "True", "none.txt"]])
    assert not (tmp_path / "parts").exists()
    assert [(tmp_path / f"{name}.txt").read_text(encoding="utf-8") for name in "bc"] == ["the cat\n\n", "the cat\n"]


def test_without_an_engine_all_is_done_here(tmp_path, monkeypatch):
    monkeypatch.delenv(ENGINE, raising=False)
    with workers(tmp_path) as spread:
        assert spread is None
