"""The process that stages are forks of."""

import json
import os
import socket
from pathlib import Path

import pytest

from pipelines.executors.client import submit
from pipelines.executors.local import SERVER, answer, forked, server


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
