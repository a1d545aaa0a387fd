"""The GPUs and CPU cores of this machine, which the stages of a study and the jobs of a sweep share."""

import contextlib
import os
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from omegaconf import ListConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_here() -> list[str]:
    """Return the names of this machine's GPUs, in the order of torch's device numbers.

    If CUDA_VISIBLE_DEVICES is set, the names are those in the variable: numbers, or UUIDs of GPUs or of MIG instances.
    """
    import torch

    n_gpus, listed = torch.cuda.device_count(), os.environ.get(VISIBLE)
    if listed is None:
        return [str(i) for i in range(n_gpus)]
    names = [name.strip() for name in listed.split(",")]
    # CUDA shows a process only the first MIG instance, but another process can use another one. Names after the first
    # invalid name are not visible.
    return names if n_gpus and names[0].startswith("MIG-") else names[:n_gpus]


def needed(trainer: Mapping[str, Any], n_gpus: int) -> tuple[int, int]:
    """Return the number of GPUs and the number of processes that a computation needs.

    Args:
        trainer: settings of the group `trainer`, or {} for one CPU process.
        n_gpus: the number of GPUs that `auto` stands for.
    """
    accelerator, devices = trainer.get("accelerator", "cpu"), trainer.get("devices", 1)
    on_gpus = accelerator in ("gpu", "cuda") or (accelerator == "auto" and n_gpus > 0)
    every = n_gpus if on_gpus else 1
    if devices == "auto":
        devices = every
    if isinstance(devices, list | ListConfig):  # a job that names its devices must see all up to the last one
        return max(devices, default=0) + 1 if on_gpus else 0, len(devices)
    devices = devices if isinstance(devices, int) else 1  # the stage reports a mistake
    return (devices, devices) if on_gpus else (0, devices)


class Reserved(NamedTuple):
    """Devices that a job has, and environment variables that hide all other GPUs from the job."""

    gpus: list[str]
    processors: int
    variables: dict[str, str]


class Devices:
    """The GPUs and CPU cores that jobs share. Two jobs never have the same GPU at the same time.

    While a job waits for several GPUs, no other job gets a GPU; otherwise jobs for one GPU could overtake it for ever.
    The same holds for CPU cores. At most `jobs` jobs run at a time.
    """

    def __init__(self, gpus: Sequence[str], processors: int, jobs: int):
        self.gpus, self.processors, self.jobs = [*gpus], processors, jobs
        self._free_gpus, self._free_processors, self._free_jobs = [*gpus], processors, jobs
        self._waiting: dict[bool, list[Hashable]] = {True: [], False: []}  # jobs for several GPUs, for several cores
        self._changed = threading.Condition()

    def take(self, job: Hashable, gpus: int, processes: int) -> Reserved | None:
        """Reserve devices for a job, or return None if the job must wait; the caller then calls `take` again.

        A job that needs more GPUs or more cores than the machine has reserves all of them.
        """
        gpus = min(gpus, len(self.gpus))
        processors = 0 if gpus else min(processes, self.processors)
        with self._changed:
            waiting = self._waiting[gpus > 0]
            enough = gpus <= len(self._free_gpus) and processors <= self._free_processors and self._free_jobs > 0
            if not enough or waiting[:1] not in ([], [job]):
                if max(gpus, processors) > 1 and job not in waiting:
                    waiting.append(job)
                return None
            if waiting:
                waiting.pop(0)
                self._changed.notify_all()  # the next job may begin, too
            own, self._free_gpus = self._free_gpus[:gpus], self._free_gpus[gpus:]
            self._free_processors -= processors
            self._free_jobs -= 1
            return Reserved(own, processors, {VISIBLE: ",".join(own)} if self.gpus else {})

    def give_back(self, reserved: Reserved) -> None:
        with self._changed:
            self._free_gpus += reserved.gpus
            self._free_processors += reserved.processors
            self._free_jobs += 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def taken(self, gpus: int, processes: int) -> Iterator[dict[str, str]]:
        """Wait until devices are free, and reserve them until the block ends.

        Yields: environment variables that hide all other GPUs from the job.
        """
        job = object()
        with self._changed:
            while (reserved := self.take(job, gpus, processes)) is None:
                self._changed.wait()
        try:
            yield reserved.variables
        finally:
            self.give_back(reserved)
