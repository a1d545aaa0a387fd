"""Which devices a machine has, and a process for each."""

import os
from collections.abc import Sequence

import torch

from retable.core.errors import UsageError

REHEARSING = 2  # processes of a processor, where many devices are asked for and there is no GPU


def accelerator_here(accelerator: str) -> str:
    """Lightning's `gpu` or `cpu`, in place of `auto` what this machine has."""
    return accelerator if accelerator != "auto" else "gpu" if torch.cuda.is_available() else "cpu"


def devices_here(accelerator: str, parallel: bool) -> int:
    """How many devices `auto` is: all GPUs; of a processor one, or where the training is `parallel` two processes, if
    it has as many cores."""
    if accelerator in ("gpu", "cuda"):
        return max(torch.cuda.device_count(), 1)
    return min(REHEARSING, len(os.sched_getaffinity(0))) if parallel else 1


def require_gpus(accelerator: str, devices: int | Sequence[int] = 1) -> None:
    """Raise UsageError where this machine has not so many GPUs, or not those of these numbers."""
    if accelerator not in ("gpu", "cuda"):
        return
    wanted, there = devices if isinstance(devices, int) else max(devices, default=0) + 1, torch.cuda.device_count()
    if there == 0:
        raise UsageError(f"accelerator={accelerator}: torch finds no GPU here; write cpu, or auto")
    if wanted > there:
        raise UsageError(f"devices={devices}: torch finds {there} GPU{'s' * (there > 1)} here; write {there}, or auto")
