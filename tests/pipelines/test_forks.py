"""The process that stages are forks of."""

import json
import os
import socket

import pytest

from pipelines.forks import OURS, answer, ask, forked, serving

WAITS = """
import os, signal
os.close(os.open(os.environ["STARTED"], os.O_WRONLY))
signal.pause()
"""


def test_what_runs_for_one_who_is_gone_ends_without_a_word(tmp_path):
    """As after Ctrl-C, which ends who asked."""
    script, started, said = tmp_path / "waits.py", tmp_path / "started", tmp_path / "said.txt"
    script.write_text(WAITS, encoding="utf-8")
    said.touch()
    os.mkfifo(started)
    job = {"module": str(script), "arguments": [], "folder": str(tmp_path), "environment": {"STARTED": str(started)},
           "out": str(said), "err": str(said), "executable": "python"}  # fmt: skip
    asks, answers = socket.socketpair()
    asks.sendall(f"{json.dumps(job)}\n".encode())

    def work() -> None:
        asks.close()
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), 2)
        answer(answers, "address")

    pid = forked(work)
    answers.close()
    with open(started):  # until the script is there
        asks.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert said.read_text(encoding="utf-8") == ""


SAVES = """
import os, signal, sys
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
os.close(os.open(os.environ["STARTED"], os.O_WRONLY))
signal.pause()
"""


def test_what_runs_when_the_server_ends_is_asked_to_end(tmp_path):
    """As where `make repro` gets a signal: a training leaves its checkpoint first."""
    script, started, said = tmp_path / "saves.py", tmp_path / "started", tmp_path / "said.txt"
    script.write_text(SAVES, encoding="utf-8")
    said.touch()
    os.mkfifo(started)
    codes, code = os.pipe()
    environment = {"STARTED": str(started)}

    def work() -> None:
        asked = ask(address, str(script), [], str(tmp_path), environment, str(said), str(said))
        os.write(code, str(asked).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(OURS, raising=False)
        with serving() as address:
            pid = forked(work)
            with open(started):  # until the script is there
                pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (os.read(codes, 10), said.read_text(encoding="utf-8")) == (b"143", "saved\n")
