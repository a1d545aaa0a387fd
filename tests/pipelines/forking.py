"""Runs modules as `python -m` would, and files as `python` would, each in a fork of a process that has the libraries
imported: their import, seconds of each stage's start, is done once. The second process of a distributed training is
such a fork, too.

A job is a line of JSON on stdin; the exit code comes back as a line, below 0 for a signal, as `subprocess` has it.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

# What the stages import of others, and the parts that come in late; none of the project's own code.
LIBRARIES = [
    "hydra",
    "lightning",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.tracking",
    "pandas",
    "scipy.stats",
    "tokenizers",
    "torch",
]


class Spare:
    """A fork from before the stage began, which waits to become what Lightning starts by `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(self) -> None:
        end, self._start = os.pipe()
        self.pid = forked(lambda: self._wait(end))
        os.close(end)

    def _wait(self, end: int) -> None:
        os.close(self._start)
        with open(end) as pipe:
            job = pipe.read()  # nothing, where the stage ends without a second process
        if job:
            run(**json.loads(job))

    def start(self, command: list[str], env: dict[str, str], cwd: str) -> "Spare":
        """Run `command`, which is Python's: `python -m module ...` or `python file ...`."""
        module, *arguments = command[2:] if command[1] == "-m" else command[1:]
        with open(self._start, "w") as pipe:
            json.dump({"module": module, "arguments": arguments, "folder": cwd, "environment": env}, pipe)
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def become(module: str, arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Run `module`, a name or a file's path, with `arguments` in `folder`; what it prints goes into the files `out` and
    `err`."""
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(path, flags)
        os.dup2(opened, stream)
        os.close(opened)
    launcher: Any = importlib.import_module("lightning.pytorch.strategies.launchers.subprocess_script")
    launcher.subprocess = SimpleNamespace(Popen=Spare().start)
    run(module, arguments, folder, environment)


def run(module: str, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """As `become`, with the streams as they are."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]  # the first is replaced by the module's file
    if module.endswith(".py"):
        sys.path[0] = os.path.dirname(module)
        runpy.run_path(module, run_name="__main__")
    else:
        sys.path[0] = folder
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def forked(work: Callable[[], None]) -> int:
    """A fork's process id. It ends as Python does behind `work`, but leaves what is imported to the operating system:
    to clear it away takes half a second."""
    if pid := os.fork():
        return pid
    code: Any = 1
    try:
        work()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    for end in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore
        end()
    os._exit(code)


def serve() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # or every fork goes through all of it, and copies it, when it ends: two seconds
    for line in sys.stdin:
        pid = forked(lambda job=line: become(**json.loads(job)))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
