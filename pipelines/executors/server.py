"""Ray and Slurm as engines: `python -m pipelines.executors.server ray ADDRESS` serves at a Unix socket.

It says `ready`, and how many it runs at a time, or in one line why not. When its standard input says so, or ends, what
still runs is asked to end, and killed if it doesn't.

A process whose node dies, or is taken back, runs again, on another; a training then goes on from its checkpoint.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Protocol

from pipelines.config.environment import DEVICES, ENGINE
from pipelines.executors.executor import resources
from retable.core.errors import UsageError

PATIENCE = 60  # seconds to write a checkpoint in, and for the cluster to say that it is done


class Running(Protocol):
    """A process somewhere."""

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""

    def end(self) -> None:
        """Ask it to end, as SIGTERM does."""

    def kill(self) -> None:
        """End it, as it was asked in vain."""


class Cluster(Protocol):
    slots: int  # its processors

    def start(self, job: dict[str, Any], devices: int, gpus: bool, nodes: int) -> Running:
        """Have a node run what was asked for: module, arguments, folder, environment, out and err. UsageError where it
        can't."""


class Here:
    """What gives its work on, beside this process."""

    def __init__(self, job: dict[str, Any]):
        with open(job["out"], "ab") as out, open(job["err"], "ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", job["module"], *job["arguments"]], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, cwd=job["folder"], env=job["environment"],
            )  # fmt: skip
        self.poll, self.end, self.kill = self._process.poll, self._process.terminate, self._process.kill


def serve(cluster: Cluster, address: str) -> None:
    ended = threading.Event()
    threads: list[threading.Thread] = []
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(address)
            server.listen()
            os.write(1, f"ready {cluster.slots}\n".encode())
        except (FileNotFoundError, BrokenPipeError):  # who started this has ended
            return
        while 0 not in select.select([server.fileno(), 0], [], [])[0]:  # 0: standard input
            connection, _ = server.accept()
            engine = f"{cluster.slots} {address}"
            threads.append(threading.Thread(target=answer, args=(cluster, connection, engine, ended), daemon=True))
            threads[-1].start()
    ended.set()
    for thread in threads:
        thread.join()


def answer(cluster: Cluster, connection: socket.socket, engine: str, ended: threading.Event) -> None:
    """Run what is asked; it is asked to end where who asked is no more."""
    with connection, connection.makefile("rw") as stream:
        job = json.loads(stream.readline())
        for name in ("out", "err"):  # a file of the asking process, which others know by its path alone
            job[name] = os.path.realpath(job[name])
        devices, kind, nodes = job["environment"].get(DEVICES, resources(1)).split()
        job["environment"][ENGINE] = "local" if int(devices) else engine
        try:
            running: Running = (
                cluster.start(job, int(devices), kind == "gpu", int(nodes)) if int(devices) else Here(job)
            )
        except UsageError as error:
            with open(job["err"], "a", encoding="utf-8") as err:
                print(f"error: {error}", file=err)
            code: int | None = 2
        else:
            code = wait(running, connection, ended)
        with contextlib.suppress(BrokenPipeError):
            print(code, file=stream, flush=True)


def wait(running: Running, asks: socket.socket, ended: threading.Event) -> int:
    """The exit code of what runs."""
    until: float | None = None  # it was asked to end, and has as long
    while (code := running.poll()) is None:
        gone = asks in select.select([asks] if until is None else [], [], [], 0.1)[0] or ended.is_set()
        if gone and until is None:
            running.end()
            until = time.monotonic() + PATIENCE
        if until is not None and time.monotonic() > until:
            running.kill()
            return -signal.SIGKILL
    return code


if __name__ == "__main__":
    try:
        cluster: Cluster = importlib.import_module(f"pipelines.executors.on_{sys.argv[1]}").Cluster()
    except UsageError as error:
        print(error)
    else:
        serve(cluster, sys.argv[2])
