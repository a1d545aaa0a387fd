"""Ray as an engine: each process is a task, which Ray runs again on another node if its node dies."""

import contextlib
import functools
import logging
import os
import signal
from typing import Any

from pipelines.executors.client import submit
from pipelines.executors.local import server
from retable.core.errors import UsageError

_open = contextlib.ExitStack()  # a Ray process starts one fork server, which stays open for its later tasks


class Cluster:
    """The Ray cluster in RAY_ADDRESS, or the cluster that this machine belongs to."""

    def __init__(self) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("Ray is not installed; pip install 'ray>=2.40', on all machines") from None
        self._ray = ray
        try:
            ray.init(os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError:
            raise UsageError("no Ray cluster answers; start one with `ray start --head`, or set RAY_ADDRESS") from None
        self.slots, self.gpus = (int(ray.cluster_resources().get(kind, 0)) for kind in ("CPU", "GPU"))
        # Ray retries a task only if its node dies: a module's exit code is a result, and not a failure of the task.
        self._run = ray.remote(max_retries=-1)(on_node)

    def start(self, job: dict[str, Any], devices: int, gpus: bool, nodes: int) -> "Task":
        if nodes > 1:
            raise UsageError("Ray runs a training on one node only; remove trainer.num_nodes, or use slurm")
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
        """Do nothing: Ray kills the task when this process ends."""


def on_node(job: dict[str, Any]) -> int:
    """Run a job on the fork server of a Ray process, and return the exit code. The server ends with the Ray process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ray cancels tasks by SIGINT, which may be ignored here
    own = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    return submit(
        _fork_server(job["environment"].get("OMP_NUM_THREADS")), **job | {"environment": job["environment"] | own}
    )


@functools.cache
def _fork_server(threads: str | None) -> str:
    """Start the fork server once and return its address. `threads` is OMP_NUM_THREADS for the server's libraries."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = threads
    return _open.enter_context(server())
