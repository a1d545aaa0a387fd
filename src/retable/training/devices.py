"""The number and kind of this machine's devices. A training runs one process per device."""

import os
from collections.abc import Sequence

import torch

from retable.core.errors import UsageError

REHEARSING = 2  # number of CPU processes of a parallel training without GPUs
SHARING = 4  # so many CPU processes may run even on fewer cores, to check losses; their speed is not recorded


def accelerator_here(accelerator: str) -> str:
    """Replace `auto` by `gpu` if torch finds a GPU, and by `cpu` otherwise; return other values unchanged."""
    return accelerator if accelerator != "auto" else "gpu" if torch.cuda.is_available() else "cpu"


def devices_here(accelerator: str, parallel: bool) -> int:
    """Return the number of devices for `devices=auto`: all GPUs, or one CPU process.

    parallel: whether to use two CPU processes instead of one, if the machine has at least two cores.
    """
    if accelerator in ("gpu", "cuda"):
        return max(torch.cuda.device_count(), 1)
    return min(REHEARSING, len(os.sched_getaffinity(0))) if parallel else 1


def limit_threads(processes: int) -> None:
    """Limit this process's threads to its share of the CPU cores; a lower limit, as in OMP_NUM_THREADS, is kept."""
    torch.set_num_threads(min(torch.get_num_threads(), max(len(os.sched_getaffinity(0)) // processes, 1)))


def require_gpus(accelerator: str, devices: int | Sequence[int] = 1) -> None:
    """Raise UsageError if this machine has fewer than `devices` GPUs, or lacks a GPU of the list `devices`."""
    if accelerator not in ("gpu", "cuda"):
        return
    needed, n_gpus = devices if isinstance(devices, int) else max(devices, default=0) + 1, torch.cuda.device_count()
    if n_gpus == 0:
        raise UsageError(f"accelerator={accelerator}: torch finds no GPU here; write cpu, or auto")
    if needed > n_gpus:
        devices_here = f"torch finds {n_gpus} GPU{'s' * (n_gpus > 1)} here"
        raise UsageError(f"devices={devices}: {devices_here}; write {n_gpus}, or auto")
