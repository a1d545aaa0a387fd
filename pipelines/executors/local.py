"""A fork server: runs modules in forks of a process that has already imported the libraries.

`python local.py ADDRESS` listens at a Unix socket and prints `ready`. The server ends when a line arrives at its
standard input, or when this input is closed. Forks that still run then get SIGTERM, and after PATIENCE seconds SIGKILL.
`multiprocessing.forkserver` would be as fast, but only the process that started it can use it, and DVC starts stages in
a shell.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

SERVER = "RETABLE_FORKS"  # the address of the fork server that runs this process
PATIENCE = 30  # seconds that a training run may take to write its checkpoint
# Libraries that stages import. Each stage imports the project's code itself, so that edits take effect.
LIBRARIES = (
    *("hydra", "lightning", "mlflow.store.tracking.sqlalchemy_store", "mlflow.tracking"),
    *("pandas", "scipy.stats", "tokenizers", "torch"),
)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Start a fork server, yield its address, and stop it after the block.

    In a process that is itself a fork of a server, yield the address of that server and start no other.
    """
    if SERVER in os.environ:
        yield os.environ[SERVER]
        return
    from pipelines.executors.client import started  # the server itself imports none of the project's code

    with started([__file__]) as (address, first_line):
        assert first_line == "ready", first_line
        yield address


def exec_module(
    module: str, arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str
) -> None:
    """Run a job in this process.

    `sys.executable` becomes the server's script, so that Lightning, too, starts its processes as forks of the server.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write = os.O_WRONLY | os.O_APPEND  # append, since `out` and `err` may be the same file
    for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, write), (2, err, write)):
        opened = os.open(path, flags)
        os.dup2(opened, stream)
        os.close(opened)
    if SERVER in environment:
        sys.executable = os.path.join(os.path.dirname(environment[SERVER]), "python")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]  # runpy replaces the first entry of sys.argv by the module's file
    own = [os.path.dirname(module) if module.endswith(".py") else folder]
    sys.path[:1] = [*own, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if module.endswith(".py"):
        runpy.run_path(module, run_name="__main__")
    else:
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def forked(work: Callable[[], None]) -> int:
    """Call `work` in a fork and return the fork's process id.

    The fork ends as a Python process does, except that it does not free the imported modules.
    """
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
    os._exit(code)  # a normal exit would take half a second to free the modules


def serve(address: str) -> None:
    """Import the libraries, and fork a process for each connection until standard input has a line or is closed.

    This process and its forks have their own session and process group, so Ctrl-C reaches only the client.
    """
    for name in LIBRARIES:
        if select.select([0], [], [], 0)[0]:
            return
        importlib.import_module(name)
    gc.freeze()  # otherwise each fork takes two seconds to visit and copy all objects when it ends
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except FileNotFoundError:  # the client has ended and has removed the folder
            return
        listener.listen()
        with contextlib.suppress(BrokenPipeError):  # the client has ended, so standard input will end
            print("ready", flush=True)
        forks: list[int] = []
        while 0 not in select.select([listener.fileno(), 0], [], [])[0]:
            connection, _ = listener.accept()
            forks = [pid for pid in forks if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            forks.append(forked(partial(answer, connection, address)))
            connection.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for ended in map(os.pidfd_open, forks):
        select.select([ended], [], [], max(deadline - time.monotonic(), 0))
    os.killpg(0, signal.SIGKILL)


def answer(connection: socket.socket, address: str) -> None:
    """Run the job of a connection in a fork, and send the job's exit code.

    If the client ends before the job does, the job gets SIGTERM.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the job, a further fork, ends on a SIGTERM to the group
    with connection.makefile() as stream:
        if not (line := stream.readline()):  # the client only tested the socket, or has ended
            return
    job = json.loads(line)
    job["environment"][SERVER] = address
    pid = forked(lambda: exec_module(**job))
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:  # the client is gone
        os.kill(pid, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{code}\n".encode())


if __name__ == "__main__":
    serve(sys.argv[1])
