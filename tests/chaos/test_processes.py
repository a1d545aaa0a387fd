"""Test what remains of `retable repro` after it is killed, and what a second `retable repro` prints."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pipelines.config.project import CONF

ROOT = CONF.parent
SMALL = """\
corpus: grammar_tiny
systems: [{of: [kn3, lstm], set: {}}]
benchmarks: {perplexity: all}
"""
SAID = r"error: study small is being run by process \d+ on \S+ since \d\d:\d\d:\d\d; wait for it, or end it\n"
pytestmark = [pytest.mark.chaos]


class Made:
    """A small study in a separate folder. `within` is put before each command."""

    def __init__(self, folder: Path):
        self.folder, self.within = folder, list[str]()
        folder.mkdir()
        (folder / "study.yaml").write_text(SMALL, encoding="utf-8")
        paths = os.pathsep.join(map(str, (ROOT / "src", ROOT)))
        self.environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        self.environment.pop("RETABLE_FORKS", None)

    def command(self) -> list[str]:
        return [*self.within, sys.executable, "-m", "pipelines.cli.main", "repro", str(self.folder)]

    def begin(self) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(), cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip

    def begin_in_a_terminal(self) -> int:
        """Start a command in a terminal. Return the other end of the terminal, which the caller closes."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(sys.executable, self.command(), self.environment)
        return terminal

    def end(self) -> tuple[int, str]:
        process = self.begin()
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def processes(self) -> list[psutil.Process]:
        """Return the processes that run in the folder."""
        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and Path(process.cwd()).is_relative_to(self.folder):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def trains(self) -> bool:
        return any((self.folder / "work/pretrain/grammar_tiny").glob("lstm-1/*"))


def until(holds: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def small(tmp_path) -> Iterator[Made]:
    made = Made(tmp_path / "small")
    yield made
    for process in made.processes():
        process.kill()


ASKED = {signal.SIGHUP: 129, signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize("number", [signal.SIGKILL, *ASKED])
def test_nothing_is_left_of_a_command_that_is_killed_alone(small, number):
    first = small.begin()
    until(small.trains, 300)
    first.send_signal(number)
    until(lambda: not small.processes(), 60)
    said, _ = first.communicate()
    assert first.returncode == ASKED.get(number, -number) and "Traceback" not in said, said
    code, said = small.end()
    assert code == 0, said


def test_nothing_is_left_when_the_terminal_is_closed(small):
    terminal = small.begin_in_a_terminal()

    def trains() -> bool:
        while select.select([terminal], [], [], 0)[0]:  # unread output would block the command
            os.read(terminal, 4096)
        return small.trains()

    until(trains, 300)
    os.close(terminal)
    until(lambda: not small.processes(), 60)


@pytest.mark.parametrize("to", [os.kill, os.killpg])
@pytest.mark.parametrize("number", ASKED)
@pytest.mark.parametrize("seconds", [0.3, 0.8, 1.6, 2.4, 3.2])
def test_a_signal_in_the_first_seconds_leaves_nothing_and_no_traceback(small, seconds, number, to):
    """Ctrl-C in the first hundredths of a second is excluded: Python prints a traceback before code of the project
    runs.
    """
    first = small.begin()
    time.sleep(seconds)
    to(first.pid, number)
    said, _ = first.communicate(timeout=30)
    until(lambda: not small.processes(), 60)
    assert first.returncode in (ASKED[number], -number)
    assert said in ("", f"{number.name}: stopped; run the same command again to resume\n")


def test_a_study_needs_no_program_of_the_path(small):
    """The PATH has no program except a shell, so git, a compiler, nvidia-smi and sbatch are missing."""
    small.environment["PATH"] = str(small.folder)
    code, said = small.end()
    assert code == 0 and "Traceback" not in said, said


def test_a_second_command_says_which_one_is_at_work(small):
    first = small.begin()
    until(small.trains, 300)
    code, said = small.end()
    assert code == 2 and re.fullmatch(SAID, said), said
    assert first.wait(timeout=300) == 0


@pytest.fixture
def container() -> Iterator[list[str]]:
    """Return a command that runs another command in a PID namespace whose first process waits for no ended ones."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("namespaces want root")
    command = ["unshare", "--pid", "--fork", "--mount-proc", "tail", "-f", "/dev/null"]
    with subprocess.Popen(command) as outer:
        until(lambda: psutil.Process(outer.pid).children(), 10)
        (inner,) = psutil.Process(outer.pid).children()
        yield ["nsenter", "--target", str(inner.pid), "--pid", "--mount"]
        inner.kill()


def test_a_study_goes_on_that_was_killed_in_a_container_without_an_init(small, container):
    small.within = container
    first = small.begin()
    until(small.trains, 300)
    for process in small.processes():
        process.send_signal(signal.SIGKILL)
    first.wait()
    code, said = small.end()
    assert code == 0, said
    small.within = []
    code, said = small.end()  # outside of the namespace, where these numbers belong to other processes
    assert code == 0 and "Nothing to do" in said, said
