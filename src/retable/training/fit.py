"""Run a training to its end, or on to its end from where a killed one stopped."""

import contextlib
import ctypes
import logging
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import nn
from torch.optim import Optimizer

from retable.errors import UsageError
from retable.training.curve import Point
from retable.training.module import Batches, Training
from retable.training.progress import Progress


def fit(
    objective: nn.Module,
    batches: Batches,
    *,
    seed: int,
    epochs: float,
    optimizer: Callable[[nn.Module], Optimizer],
    schedule: Callable[..., float],
    clip_norm: float | None,
    trainer: Mapping[str, Any],
    scratch: Path,
    checkpoint_every: int,
    validations: float,
    validate: Callable[[nn.Module], dict[str, float]],
    log: Callable[[list[Point]], None],
) -> list[Point]:
    """Train `objective` in place and return its learning curve.

    `trainer` holds Lightning's own settings (accelerator, devices, strategy, precision). `scratch/last.ckpt` is
    written every `checkpoint_every` steps; where it exists already, the run goes on from there and ends with the
    same weights, bit for bit, as one that was never stopped. `validate` is called `validations` times an epoch
    (fewer than one is allowed) and at the end. Raises UsageError where the checkpoint can't be read.
    """
    _keep_freed_memory()
    max_steps = max(round(epochs * batches.steps_per_epoch), 1)
    checkpoint = scratch / "last.ckpt"
    if checkpoint.exists():
        _check(checkpoint)
    progress = Progress(
        scratch,
        checkpoint_every=checkpoint_every,
        validate_every=max(round(batches.steps_per_epoch / validations), 1),
        log_every=max(max_steps // 200, 1),
        validate=validate,
        log=log,
    )
    bar = [TQDMProgressBar(refresh_rate=20)] if sys.stderr.isatty() else []
    with _quiet_lightning():
        runner = L.Trainer(
            **trainer,
            max_steps=max_steps,
            max_epochs=-1,
            callbacks=[progress, *bar],
            default_root_dir=scratch,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=bool(bar),
            use_distributed_sampler=False,
        )
        if runner.num_devices > 1 and runner.strategy.root_device.type == "cpu":
            torch.set_num_threads(max(len(os.sched_getaffinity(0)) // runner.num_devices, 1))
        training = Training(objective, batches, seed, max_steps, optimizer, schedule, clip_norm)
        runner.fit(training, ckpt_path=checkpoint if checkpoint.exists() else None)
    objective.to("cpu").eval()
    return progress.points


def _check(checkpoint: Path) -> None:
    """Read the checkpoint, a zip archive, through against its checksums."""
    try:
        with zipfile.ZipFile(checkpoint) as archive:
            damaged = archive.testzip() is not None
    except Exception:  # a damaged archive can trip its reader in any way, not by BadZipFile alone
        damaged = True
    if damaged:
        raise UsageError(f"the checkpoint {checkpoint} is damaged; delete it to train from the start")


def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks instead of handing them back at every step.

    Page faults took a quarter of a small model's step: 66 → 51 ms for an LSTM of Zaremba's small size.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 << 20)):  # MMAP_MAX, TRIM_THRESHOLD, TOP_PAD
            mallopt(option, value)


@contextlib.contextmanager
def _quiet_lightning():
    """Leave out Lightning's banner and its advice about loaders, which these have reasons not to follow."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        logger.setLevel(level)
