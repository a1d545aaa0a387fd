"""The process that stages are forks of."""

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from pipelines.executors import client
from pipelines.executors.client import submit
from pipelines.executors.local import SERVER, answer, forked, server
from retable.core.errors import UsageError


@pytest.fixture
def job(tmp_path):
    """Of a script: what a fork is asked to run, and the pipe that tells when it is there."""

    def made(text: str) -> tuple[dict, str]:
        script, started, said = tmp_path / "script.py", tmp_path / "started", tmp_path / "said.txt"
        script.write_text(text, encoding="utf-8")
        said.touch()
        os.mkfifo(started)
        asked = {"module": str(script), "arguments": [], "folder": str(tmp_path), "out": str(said), "err": str(said)}
        return asked | {"environment": {"STARTED": str(started)}}, str(started)

    return made


WAITS = """
import os, signal
os.close(os.open(os.environ["STARTED"], os.O_WRONLY))
signal.pause()
"""


def test_what_runs_for_one_who_is_gone_ends_without_a_word(job):
    """As after Ctrl-C, which ends who asked."""
    asked, started = job(WAITS)
    asks, answers = socket.socketpair()
    asks.sendall(f"{json.dumps(asked)}\n".encode())

    def work() -> None:
        asks.close()
        os.dup2(os.open(asked["out"], os.O_WRONLY | os.O_APPEND), 2)
        answer(answers, "address")

    pid = forked(work)
    answers.close()
    with open(started):  # until the script is there
        asks.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert Path(asked["out"]).read_text(encoding="utf-8") == ""


SAVES = """
import os, signal, sys
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
os.close(os.open(os.environ["STARTED"], os.O_WRONLY))
signal.pause()
"""


@pytest.mark.long
def test_what_runs_when_the_server_ends_is_asked_to_end(job):
    """As where `make repro` gets a signal: a training leaves its checkpoint first."""
    asked, started = job(SAVES)
    codes, code = os.pipe()

    def work() -> None:
        os.write(code, str(submit(address, **asked)).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SERVER, raising=False)
        with server() as address:
            pid = forked(work)
            with open(started):  # until the script is there
                pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (os.read(codes, 10), Path(asked["out"]).read_text(encoding="utf-8")) == (b"143", "saved\n")


@pytest.mark.parametrize(("end", "code"), [("", 0), ("3", 3), ("'no such thing'", 1), ("None", 0)])
def test_a_fork_ends_as_python_would(end, code, capfd):
    pid = forked(lambda: exec(f"import sys; sys.exit({end})"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert ("no such thing" in capfd.readouterr().err) == (code == 1)


def address_of(monkeypatch, folder: Path) -> str:
    """The address of a server that is started with a temporary folder, by a stand-in that only says so."""
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with client.started(["-c", "print('ready'); input()"]) as (address, first_line):
        assert first_line == "ready" and Path(address).parent.is_dir()
    assert not Path(address).parent.exists()
    return address


def test_a_temporary_folder_of_a_long_path_is_passed_over(monkeypatch, tmp_path):
    (long := tmp_path / ("x" * 100)).mkdir()
    assert address_of(monkeypatch, long).startswith("/tmp/retable-") and [*long.iterdir()] == []


def test_a_temporary_folder_that_runs_no_programs_is_passed_over(monkeypatch):
    folder = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).startswith(folder))
    assert not address_of(monkeypatch, Path(folder)).startswith(folder)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UsageError, match="set TMPDIR to another folder"):
        address_of(monkeypatch, Path(folder))
    os.rmdir(folder)


def test_what_a_killed_server_left_is_removed_and_a_live_one_stays(monkeypatch):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    (folder / "retable-alive000").mkdir()
    (folder / "retable-killed00").mkdir()
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(folder / "retable-alive000/forks"))
        alive.listen()
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(folder / "retable-killed00/forks"))
        address_of(monkeypatch, folder)
        assert len([*folder.iterdir()]) == 2  # both are young
        for each in folder.iterdir():
            os.utime(each / "forks", (0, 0))
        address_of(monkeypatch, folder)
        assert [each.name for each in folder.iterdir()] == ["retable-alive000"]
    shutil.rmtree(folder)


def test_a_connection_that_asks_for_nothing_ends_without_a_word(capfd):
    asks, answers = socket.socketpair()
    asks.close()
    answer(answers, "address")
    assert capfd.readouterr() == ("", "")
