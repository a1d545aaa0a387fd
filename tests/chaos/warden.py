"""`warden.py CODE SECONDS module argument…` runs a module, and waits for all processes that it starts.

It also waits for processes whose parent has ended. Then it writes the exit code into the file CODE, negative for a
signal. A command that takes longer than SECONDS is killed, and CODE stays empty.

Stages that `dvc` runs are forks of a server that this script starts; stages of `retable repro` are forks of its own
server.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

from pipelines.executors.client import write_python
from pipelines.executors.local import SERVER, exec_module, forked, serve
from tests.chaos.fate import touch

PR_SET_CHILD_SUBREAPER = 36


def watch(code: Path, seconds: int, module: str, arguments: list[str]) -> None:
    os.closerange(3, 256)  # open files of the process that started this one
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.environ.pop(SERVER)  # a command that needs a fork server starts one,
    sys.executable = str(Path(sys.prefix, "bin/python"))  # as a process, not as a fork of this script's server
    ending = serve_beside(code.parent) if module == "dvc" else os.open(os.devnull, os.O_RDONLY)
    leader = forked(lambda: lead(module, arguments))
    signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == leader:
            code.write_text(str(os.waitstatus_to_exitcode(status)), encoding="utf-8")
            os.close(ending)


def lead(module: str, arguments: list[str]) -> None:
    os.setsid()
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler if module == "dvc" else signal.SIG_DFL)
    os.environ["CHAOS_LEADER"] = str(os.getpid())
    sys.addaudithook(touch)
    exec_module(module, arguments, os.getcwd(), dict(os.environ), "/dev/stdout", "/dev/stderr")


def serve_beside(folder: Path) -> int:
    """Start a fork server. Return what the caller closes to end it."""
    (address := folder / "forks").unlink(missing_ok=True)
    until, ending = os.pipe()

    def work() -> None:
        os.close(ending)
        os.setsid()
        os.dup2(until, 0)
        sys.addaudithook(touch)
        serve(str(address))

    forked(work)
    os.close(until)
    write_python(str(address))
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return ending


def end(*_: Any) -> None:
    for child in psutil.Process().children(recursive=True):
        child.kill()
    sys.exit(1)


if __name__ == "__main__":
    watch(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
