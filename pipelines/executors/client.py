"""Client of local.py and server.py, two servers that listen at a Unix socket and run Python modules."""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

LONGEST = 107  # Linux's limit for the path of a socket, in bytes


@contextlib.contextmanager
def started(server: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Start `python <server> ADDRESS`, yield ADDRESS and the server's first line, and stop the server after the block.

    The server has its own session, so signals from a terminal, or to this process's group, do not reach the server.
    """
    address = _address()
    try:
        command = [sys.executable, *server, address]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                first_line = process.stdout.readline().rstrip()
            except BaseException:  # for example because of a signal; the server runs no job yet
                process.kill()
                raise
            try:
                yield address, first_line
            finally:  # closing the pipe is not enough, because forks of this process keep it open
                with contextlib.suppress(BrokenPipeError):
                    print("end", file=process.stdin, flush=True)
    finally:
        shutil.rmtree(Path(address).parent)


def _address() -> str:
    """Make a folder for a socket and the script `python`, and return the socket's path.

    Raises: UsageError: no temporary folder can be used.
    """
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108, mkdtemp makes it safely
        _remove_dead(parent)
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=_prefix(), dir=parent)  # forks would remove a TemporaryDirectory
            address = f"{folder}/forks"
            write_python(address)
            if len(os.fsencode(address)) <= LONGEST and os.access(python_of(address), os.X_OK):
                return address
            shutil.rmtree(folder)
    from retable.core.errors import UsageError  # not at the top: `write_python`'s script cannot import packages

    raise UsageError(
        f"{tempfile.gettempdir()}, /tmp and /var/tmp cannot be used: each has too long a path, is not writable or "
        "forbids programs; set TMPDIR to another folder"
    )


def _prefix() -> str:
    """Return the prefix of this machine's server folders; machines may share a temporary folder."""
    return f"retable-{zlib.crc32(socket.gethostname().encode()):08x}-"


def _remove_dead(parent: str) -> None:
    """Remove the folders of killed servers from a temporary folder.

    A server counts as killed if its socket is older than a minute and does not answer.
    """
    for path in Path(parent).glob(f"{_prefix()}????????/forks"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            if time.time() - path.stat().st_mtime < 60:
                continue  # the folder's server may not listen yet
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                shutil.rmtree(path.parent)


def python_of(address: str) -> str:
    """Return the path of the script that replaces `python` for the server at an address."""
    return str(Path(address).with_name("python"))


def write_python(address: str) -> None:
    """Write a script `python` that makes the server run `-m module argument…` or `file argument…`.

    The server uses the script's working folder. If the shell's PATH begins with the script's folder, commands such as
    `python -m module` need no change. The script ends when the process that started the script ends.
    """
    script = Path(python_of(address))
    text = f"""#!{os.readlink("/proc/self/exe")} -S
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from client import end_with_parent, submit
end_with_parent(os.getppid())
module, *arguments = sys.argv[2:] if sys.argv[1] == "-m" else sys.argv[1:]
out, err = (f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2))
sys.exit(submit({address!r}, module, arguments, os.getcwd(), dict(os.environ), out, err))
"""
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)


def submit(
    address: str, module: str, arguments: Sequence[str], folder: str, environment: dict[str, str], out: str, err: str
) -> int:
    """Run a module or file in the working folder `folder`; return the exit code, which is negative after a signal.

    The module's output is appended to the files `out` and `err`. If this process ends before the module does, the
    module is stopped.
    """
    job = {"module": module, "arguments": arguments, "folder": folder, "environment": environment,
           "out": out, "err": err}  # fmt: skip
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as stream:
        connection.connect(address)
        print(json.dumps(job), file=stream, flush=True)
        try:
            while not select.select([connection], [], [], 0.5)[0]:
                pass  # Ray cancels a task without a signal, which a blocking wait would not notice
            return int(stream.readline())
        except KeyboardInterrupt:
            connection.shutdown(socket.SHUT_WR)  # makes the server end the job
            stream.readline()
            raise


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when `parent`, the process that forked it, ends for any reason."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent has already ended
        os._exit(1)
