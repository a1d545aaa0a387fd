"""Runs modules as `python -m` would, and files as `python` would, each in a fork of a process that has the libraries
imported: their import, seconds of each stage's start, is done once.

`python local.py ADDRESS` serves at a Unix socket, and says so when it does, until its standard input says so or ends;
then all that still runs is asked to end (SIGTERM), and killed if it doesn't. `ask` has it run one, which is asked to
end if who asked is no more. The exit code is below 0 for a signal, as `subprocess` has it. What starts Python by its
path, as a shell does, can be given that of `write_python`.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

OURS = "RETABLE_FORKS"  # the address of the server that runs this
PATIENCE = 30  # seconds to write a checkpoint in
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


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a server, which ends with this; in what one runs, that one's."""
    if OURS in os.environ:
        yield os.environ[OURS]
        return
    with started([__file__]) as (address, said):
        assert said == "ready", said
        yield address


@contextlib.contextmanager
def started(server: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The address that Python serves at when told to run `server`, which ends with this; and what it says when it
    does."""
    folder = tempfile.mkdtemp(prefix="retable-")  # no TemporaryDirectory, which goes where any fork of this ends
    try:
        command = [sys.executable, *server, address := f"{folder}/forks"]
        write_python(address)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                yield address, process.stdout.readline().rstrip()
            finally:  # to close it is not enough: a fork of this process has it open, too
                with contextlib.suppress(BrokenPipeError):
                    print("end", file=process.stdin, flush=True)
    finally:
        shutil.rmtree(folder)


def python_of(address: str) -> str:
    """The path of the script that does what Python would, by the server at an address."""
    return str(Path(address).with_name("python"))


def write_python(address: str) -> None:
    """Write a script that does what `python -m module argument…`, or `python file argument…`, does where it is started.
    It ends when what started it does, and with it what it asked for."""
    script = Path(python_of(address))
    text = f"""#!{os.readlink("/proc/self/exe")} -S
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from local import ask, end_with_parent
end_with_parent(os.getppid())
module, *arguments = sys.argv[2:] if sys.argv[1] == "-m" else sys.argv[1:]
out, err = (f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2))
sys.exit(ask({address!r}, module, arguments, os.getcwd(), dict(os.environ), out, err))
"""
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)


def ask(address: str, module: str, arguments: Sequence[str], folder: str, environment: dict[str, str], out: str,
        err: str) -> int:  # fmt: skip
    """The exit code of `module`, a name or a file's path, run with `arguments` in `folder`; what it prints goes into
    the files `out` and `err`."""
    job = {"module": module, "arguments": arguments, "folder": folder, "environment": environment,
           "out": out, "err": err}  # fmt: skip
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
        connection.connect(address)
        print(json.dumps(job), file=stream, flush=True)
        try:
            while not select.select([connection], [], [], 0.5)[0]:
                pass  # Ray ends a task without a signal: nothing that waits for good notices
            return int(stream.readline())
        except KeyboardInterrupt:
            connection.shutdown(socket.SHUT_WR)  # which asks it to end
            stream.readline()
            raise


def become(module: str, arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> None:
    """Do in this process what was asked for. What it starts by `sys.executable`, as Lightning starts the other
    processes of a training, is a fork of the same server."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write = os.O_WRONLY | os.O_APPEND  # out and err may be one file
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, write), (2, err, write)):
        opened = os.open(path, flags)
        os.dup2(opened, stream)
        os.close(opened)
    if OURS in environment:
        sys.executable = python_of(environment[OURS])
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]  # the first is replaced by the module's file
    own = [os.path.dirname(module) if module.endswith(".py") else folder]
    sys.path[:1] = [*own, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if module.endswith(".py"):
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which forked it, ends, whatever ended that."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


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
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    for end in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore
        end()
    os._exit(code)


def serve(address: str) -> None:
    os.setsid()  # what is killed at the end is this process and its forks; Ctrl-C is for who asks
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # or every fork goes through all of it, and copies it, when it ends: two seconds
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        waiting: list[int] = []
        while 0 not in select.select([server.fileno(), 0], [], [])[0]:  # 0: standard input
            connection, _ = server.accept()
            waiting = [pid for pid in waiting if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            waiting.append(forked(partial(answer, connection, address)))
            connection.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    behind = time.monotonic() + PATIENCE
    for ended in map(os.pidfd_open, waiting):
        select.select([ended], [], [], max(behind - time.monotonic(), 0))
    os.killpg(0, signal.SIGKILL)


def answer(connection: socket.socket, address: str) -> None:
    """What is asked is a fork of this one, so that it may itself ask for more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # of the group's end, which that obeys
    with connection.makefile() as stream:
        job = json.loads(stream.readline())
    job["environment"][OURS] = address
    pid = forked(lambda: become(**job))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:  # who asked is no more
        os.kill(pid, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{code}\n".encode())


if __name__ == "__main__":
    serve(sys.argv[1])
