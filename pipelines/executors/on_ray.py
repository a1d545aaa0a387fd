"""Ray as an engine: a process is a task, which runs again, on another node, where its node dies."""

import contextlib
import functools
import logging
import os
import signal
from typing import Any

from pipelines.executors.client import submit
from pipelines.executors.local import server
from retable.core.errors import UsageError

_open = contextlib.ExitStack()  # what a process of Ray's keeps from one task to the next


class Cluster:
    """The cluster that RAY_ADDRESS names, or the one that this machine is a node of."""

    def __init__(self) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("Ray is not installed; pip install 'ray>=2.40', on all machines") from None
        self._ray = ray
        try:
            ray.init(os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            raise UsageError(
                "no Ray cluster answers; `ray start --head` starts one, RAY_ADDRESS names another"
            ) from None
        self.slots = int(ray.cluster_resources().get("CPU", 0))
        self._run = ray.remote(max_retries=-1)(on_node)  # where its node dies; a code that tells a failure is a result

    def start(self, job: dict[str, Any], devices: int, gpus: bool, nodes: int) -> "Task":
        if nodes > 1:
            raise UsageError("one training over several nodes is for Slurm, or torchrun; leave trainer.num_nodes out")
        return Task(self._ray, self._run.options(num_cpus=devices, num_gpus=devices * gpus).remote(job))


class Task:
    def __init__(self, ray: Any, result: Any):
        self._ray, self._result = ray, result

    def poll(self) -> int | None:
        if not self._ray.wait([self._result], timeout=0)[0]:
            return None
        try:
            return int(self._ray.get(self._result))
        except self._ray.exceptions.TaskCancelledError:
            return -signal.SIGTERM

    def end(self) -> None:
        self._ray.cancel(self._result)

    def kill(self) -> None:
        """Ray does, when this process ends."""


def on_node(job: dict[str, Any]) -> int:
    """In a process of Ray's: what a fork of its own server comes to. That ends when this does."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # by which a task ends; it may have been ignored at Ray's start
    own = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    return submit(_forks(job["environment"].get("OMP_NUM_THREADS")), **job | {"environment": job["environment"] | own})


@functools.cache
def _forks(threads: str | None) -> str:
    """The server's address; its libraries have that many threads from their import on."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = threads
    return _open.enter_context(server())
