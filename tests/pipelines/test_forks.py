"""Test the server whose forks run the stages."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipelines.config.project import CONF
from pipelines.executors import client, local
from pipelines.executors.client import submit
from pipelines.executors.local import SERVER, answer, forked, serve, server
from retable.core.errors import UsageError
from retable.training.signals import Stopped, deliver, held, leave, listen, reset_handlers


@pytest.fixture
def job(tmp_path):
    """Return the request to run a script in a fork, and a pipe that shows when the script has started."""

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
    asked, started = job(WAITS)
    asks, answers = socket.socketpair()
    asks.sendall(f"{json.dumps(asked)}\n".encode())

    def work() -> None:
        asks.close()
        os.dup2(os.open(asked["out"], os.O_WRONLY | os.O_APPEND), 2)
        answer(answers, "address")

    pid = forked(work)
    answers.close()
    with open(started):  # waits for the script to start
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
    asked, started = job(SAVES)
    codes, code = os.pipe()

    def work() -> None:
        os.write(code, str(submit(address, **asked)).encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(SERVER, raising=False)
        with server() as address:
            pid = forked(work)
            with open(started):  # waits for the script to start
                pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (os.read(codes, 10), Path(asked["out"]).read_text(encoding="utf-8")) == (b"143", "saved\n")


@pytest.mark.parametrize(("end", "code"), [("", 0), ("3", 3), ("'no such thing'", 1), ("None", 0)])
def test_a_fork_ends_as_python_would(end, code, capfd):
    pid = forked(lambda: exec(f"import sys; sys.exit({end})"))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert ("no such thing" in capfd.readouterr().err) == (code == 1)


def address_of(monkeypatch, folder: Path) -> str:
    """Start a stand-in for the server, with `folder` as the temporary folder. Return its address."""
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
    own, others = client._prefix(), "retable-01234567-another0"  # on another machine that shares the folder
    for name in (f"{own}alive000", f"{own}killed00", others):
        (folder / name).mkdir()
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(folder / f"{own}alive000/forks"))
        alive.listen()
        for name in (f"{own}killed00", others):
            with socket.socket(socket.AF_UNIX) as silent:
                silent.bind(str(folder / name / "forks"))
        address_of(monkeypatch, folder)
        assert len([*folder.iterdir()]) == 3  # all three are recent
        for each in folder.iterdir():
            os.utime(each / "forks", (0, 0))
        address_of(monkeypatch, folder)
        assert {each.name for each in folder.iterdir()} == {f"{own}alive000", others}
    shutil.rmtree(folder)


def test_a_connection_that_asks_for_nothing_ends_without_a_word(capfd):
    asks, answers = socket.socketpair()
    asks.close()
    answer(answers, "address")
    assert capfd.readouterr() == ("", "")


def test_a_server_whose_folder_is_gone_ends_without_a_word(monkeypatch, capfd):
    reading, writing = os.pipe()

    def work() -> None:
        os.dup2(reading, 0)
        os.close(writing)
        serve(f"{folder}/forks")

    monkeypatch.setattr(local, "LIBRARIES", ())
    folder = tempfile.mkdtemp(dir="/tmp")
    os.rmdir(folder)
    pid = forked(work)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert capfd.readouterr() == ("", "")
    os.close(reading), os.close(writing)


def test_a_server_that_is_to_end_imports_nothing_more(monkeypatch):
    monkeypatch.setattr(local, "LIBRARIES", ("no_such_library",))
    monkeypatch.setattr("select.select", lambda reads, *_: (reads, [], []))
    serve("no such address")


NEVER_READY = """
import os, signal, sys
with open(sys.argv[1], "w") as file:
    file.write(f"{os.getpid()} {os.getsid(0)}")
for _ in range(2):
    os.kill(os.getppid(), NUMBER)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_before_the_server_is_ready_leaves_nothing(number, monkeypatch, tmp_path):
    """Two signals, as `timeout` sends them. The server leads a session, so signals of a terminal do not reach it."""
    (script := tmp_path / "server.py").write_text(NEVER_READY.replace("NUMBER", str(int(number))), encoding="utf-8")
    monkeypatch.setattr("tempfile.tempdir", temporary := tempfile.mkdtemp(dir="/tmp"))
    listen()
    with pytest.raises(Stopped), client.started([str(script), str(tmp_path / "server")]):
        pytest.fail("the server is not ready")
    reset_handlers()
    server, session = map(int, (tmp_path / "server").read_text(encoding="utf-8").split())
    assert session == server
    with contextlib.suppress(ChildProcessError):  # its end may have been handled already
        os.waitpid(server, 0)
    os.rmdir(temporary)


AMID_AN_IMPORT = """
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with & ignores it

class Signals(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            os.kill(os.getpid(), NUMBER)

sys.meta_path.insert(0, Signals())
sys.argv = ["retable", "repro"]
from pipelines.cli.main import main
main()
"""


@pytest.mark.parametrize(("number", "module", "code"), [
    (signal.SIGINT, "typer", -signal.SIGINT),
    (signal.SIGINT, "omegaconf.dictconfig", 130),
    (signal.SIGTERM, "hydra.conf", 143),
    (signal.SIGHUP, "pipelines.study.compose", 129),
])  # fmt: skip
def test_a_signal_amid_the_imports_of_a_command_is_no_error_of_theirs(number, module, code, tmp_path):
    text = AMID_AN_IMPORT.replace("MODULE", repr(module)).replace("NUMBER", str(int(number)))
    own = os.environ | {"PYTHONPATH": f"{CONF.parent / 'src'}{os.pathsep}{CONF.parent}"}
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=own, capture_output=True, text=True)
    line = f"{number.name}: stopped; run the same command again to resume\n" * (code > 0)
    assert (done.returncode, done.stderr) == (code, line)


def test_a_signal_waits_in_what_is_forked_until_it_may_come(capfd):
    listen()
    with held():
        pid = forked(lambda: (os.kill(os.getpid(), signal.SIGTERM), leave(), deliver()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    assert capfd.readouterr() == ("", "")
