"""Run a training to its end, or on to its end from where a killed one stopped."""

import contextlib
import ctypes
import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.optim import Optimizer

from retable.core.errors import UsageError
from retable.data.batches import Batches, Measure
from retable.objectives.base import Objective, SelfUpdating
from retable.training.blocks import FullySharded, gather, replica
from retable.training.checkpoints import latest, require_weights
from retable.training.curve import Point
from retable.training.data import Data
from retable.training.module import Training
from retable.training.observers import Handed
from retable.training.progress import Best, Progress
from retable.training.signals import PARTNER_LOST, StepEnd
from retable.training.weights import load_weights


class Fitted(NamedTuple):
    """A learning curve, and how long the steps of this process took, validations and checkpoints left out."""

    points: list[Point]
    steps: int
    seconds: float
    step: int  # that of the weights that were kept
    device: torch.device  # that this process ran on
    devices: int  # of all processes together


_MACHINE = {"accelerator", "devices", "strategy", "precision", "accumulate_grad_batches"}  # what decides on a speed
WARMING, MEASURED = 5, 25  # steps that are run before, and in all, to measure how long one takes


def fit(
    objective: Objective | SelfUpdating,
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
    validation: Measure | None,
    log: Callable[[Sequence[Point]], None],
    averaging: Callable[[Sequence[float]], bool] | None = None,
    max_steps: int | None = None,
    seconds: float | None = None,
    best: Best | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> Fitted:
    """Train `objective` in place and return its learning curve, with the time it took.

    `trainer` holds Lightning's own settings (accelerator, devices, strategy, precision), and obeys any others of its
    Trainer that stand there. `scratch/last.ckpt` is
    written every `checkpoint_every` steps; where it exists already, the run goes on from there and ends with the
    same weights, bit for bit, as one that was never stopped; so it does from the checkpoint before, where the last is
    damaged. `validation` is measured `validations` times an epoch
    (fewer than one is allowed) and at the end; see Training for `averaging`.

    `epochs` gives the run its length, unless `max_steps` or the steps that fit into `seconds` are fewer; the schedule
    then is that of all epochs, drawn together. How long a step takes is measured on a copy before the first, and kept
    with the checkpoint. `callbacks` look on at the training, not at what is measured before, and what they log goes to
    `log`. With `best` the training may end before, and the weights are those of its best validation.
    Raises UsageError where the checkpoint holds more than weights; where the process listens to signals, Stopped behind
    the checkpoint of the step in which one came.
    """
    _keep_freed_memory()
    wanted = max(round(epochs * batches.steps_per_epoch), 1)
    if seconds is not None:
        kept = scratch / "seconds.json"
        if not kept.exists():
            module = Training(replica(objective), seed, MEASURED, optimizer, schedule, clip_norm, epochs)
            (begun := scratch / "seconds.begun").write_text(
                json.dumps(_seconds_per_step(module, batches, trainer, scratch))
            )
            os.replace(begun, kept)
        within = max(int(seconds / json.loads(kept.read_text())), 1)
        max_steps = within if max_steps is None else min(max_steps, within)
    max_steps = wanted if max_steps is None else min(max_steps, wanted)
    checkpoint = latest(scratch / "last.ckpt")
    validate_every, log_every = max(round(batches.steps_per_epoch / validations), 1), max(max_steps // 200, 1)
    progress = Progress(
        scratch, checkpoint_every=checkpoint_every, say_every=validate_every, log_every=log_every, log=log, best=best,
        step_end=(step_end := StepEnd()),
    )  # fmt: skip
    bar = [TQDMProgressBar(refresh_rate=20)] if sys.stderr.isatty() else []
    with quiet_lightning():
        if sharded := trainer.get("strategy") == "fsdp":
            trainer = {**trainer, "strategy": FullySharded()}
        settings: dict[str, Any] = {
            "max_steps": max_steps,
            "max_epochs": -1,
            "val_check_interval": validate_every * trainer.get("accumulate_grad_batches", 1),
            "check_val_every_n_epoch": None,
            "limit_val_batches": None if validation else 0,
            "num_sanity_val_steps": 0,
            "log_every_n_steps": log_every,
            "callbacks": [*callbacks, *bar, progress],
            "default_root_dir": scratch,
            "logger": Handed(log) if callbacks else False,
            "enable_model_summary": False,
            "enable_progress_bar": bool(bar),
            "use_distributed_sampler": False,
        }
        if "check_val_every_n_epoch" in trainer or isinstance(trainer.get("val_check_interval"), float):  # by epochs
            settings |= {"val_check_interval": 1.0, "check_val_every_n_epoch": 1}
        runner = L.Trainer(**{**settings, **trainer})
        if runner.num_devices > 1 and runner.strategy.root_device.type == "cpu":
            torch.set_num_threads(max(len(os.sched_getaffinity(0)) // runner.num_devices, 1))
        trained = replica(objective) if sharded else objective  # whose weights will be shares for good
        training = Training(trained, seed, max_steps, optimizer, schedule, clip_norm, epochs, averaging)
        data = Data(batches, validation)
        try:
            with step_end:
                runner.fit(training, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        except UnpicklingError:
            raise UsageError(
                f"{checkpoint} is refused: reading it could run code, for it holds more than weights and numbers; "
                "delete it, and whatever else is beside it of that origin, to train from the start"
            ) from None
        training.finish()
        if sharded:
            gather(trained, objective)
    objective.to("cpu").eval()
    step = progress.best_step()
    if step is not None:
        runner.strategy.barrier()  # the first process has written them
        load_weights(objective, require_weights(progress.best_weights))
        runner.strategy.barrier()  # all have read them, and it may remove the folder
    else:
        step = runner.global_step
    device = runner.strategy.root_device
    return Fitted(progress.points, progress.steps, progress.seconds, step, device, runner.world_size)


class _Clock(L.Callback):
    """When each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, _: Any, __: Any, ___: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.times.append(time.perf_counter())


def _seconds_per_step(training: Training, batches: Batches, trainer: Mapping[str, Any], scratch: Path) -> float:
    """The median over some steps, after the first ones."""
    if trainer.get("devices", 1) != 1:
        raise UsageError("a budget of time is measured on one device; write it in flops or tokens")
    clock = _Clock()
    with quiet_lightning():
        L.Trainer(
            **{name: trainer[name] for name in _MACHINE & trainer.keys()},
            max_steps=MEASURED,
            max_epochs=-1,
            limit_val_batches=0,
            callbacks=[clock],
            default_root_dir=scratch,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        ).fit(training, datamodule=Data(batches))
    return statistics.median(after - before for before, after in pairwise(clock.times[WARMING:]))


def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks instead of handing them back at every step.

    Page faults took a quarter of a small model's step: 66 → 51 ms for an LSTM of Zaremba's small size.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 << 20)):  # MMAP_MAX, TRIM_THRESHOLD, TOP_PAD
            mallopt(option, value)


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Leave out Lightning's banner and its advice about loaders, which these have reasons not to follow. What
    it refuses is a UsageError."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    except MisconfigurationException as error:
        raise UsageError(f"Lightning's Trainer: {' '.join(str(error).split())}") from error
    finally:
        logger.setLevel(level)


def _in_one_line(record: logging.LogRecord) -> bool:
    """Print a line of the project's in place of Lightning's, before that kills the processes which wait for another."""
    if "terminated with code" not in record.getMessage():
        return True
    print(f"error: {PARTNER_LOST}", file=sys.stderr, flush=True)
    return False


logging.getLogger("lightning.fabric.strategies.launchers.subprocess_script").addFilter(_in_one_line)
