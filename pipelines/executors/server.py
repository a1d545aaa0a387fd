"""Server of the engines ray and slurm: `python -m pipelines.executors.server ray ADDRESS` listens at a Unix socket.

The server prints `ready` and the cluster's numbers of CPU cores and GPUs, or one line with the reason why it did not
start. When the server's standard input has a line or is closed, running processes get SIGTERM, and after PATIENCE
seconds SIGKILL.

A process whose node dies or is preempted runs again on another node; training then resumes from its checkpoint.
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

PATIENCE = 60  # seconds in which training writes its checkpoint and the cluster reports the end of training


class Running(Protocol):
    """A process that runs on one of the cluster's machines."""

    def poll(self) -> int | None:
        """Return the process's exit code, or None while the process runs."""

    def end(self) -> None:
        """Ask the process to end, as SIGTERM does."""

    def kill(self) -> None:
        """Kill the process; this method is called if `end` had no effect."""


class Cluster(Protocol):
    slots: int  # number of CPU cores
    gpus: int  # number of GPUs

    def start(self, job: dict[str, Any], devices: int, gpus: bool, nodes: int) -> Running:
        """Start a job on a node.

        Args:
            job: module, arguments, folder, environment, out and err.
            devices: number of GPUs per node if `gpus` is true, otherwise of CPU cores per node.
            gpus: whether devices are GPUs.
            nodes: number of nodes.

        Raises: UsageError: the cluster does not accept the job.
        """


class Here:
    """A process on this machine, for stages that run only parts of their work on the engine."""

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
            os.write(1, f"ready {cluster.slots} {cluster.gpus}\n".encode())
        except (FileNotFoundError, BrokenPipeError):  # the client has ended
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
    """Run the job of a connection and send the job's exit code; stop the job if the client ends."""
    with connection, connection.makefile("rw") as stream:
        if not (line := stream.readline()):  # the client only tested the socket, or has ended
            return
        job = json.loads(line)
        for name in ("out", "err"):  # a link in the client's /proc exists only on the client's machine
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


def wait(running: Running, client: socket.socket, ended: threading.Event) -> int:
    """Wait for a job and return its exit code; stop the job if the client or the server ends."""
    until: float | None = None  # the time at which to kill a job that was asked to end
    while (code := running.poll()) is None:
        gone = client in select.select([client] if until is None else [], [], [], 0.1)[0] or ended.is_set()
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
