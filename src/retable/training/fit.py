"""Run a training from the start, or from the last checkpoint, to its end."""

import contextlib
import copy
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
from retable.training.blocks import FullySharded, gather
from retable.training.checkpoints import latest, require_weights
from retable.training.curve import Point
from retable.training.data import Data
from retable.training.devices import limit_threads
from retable.training.module import Training
from retable.training.observers import PointLogger
from retable.training.progress import Best, Progress
from retable.training.signals import PARTNER_LOST, StepEnd
from retable.training.weights import load_weights


class Fitted(NamedTuple):
    """The result of a training: its learning curve, number of steps, time and devices.

    `steps` is the number of steps since the start or resumption of the training. `seconds` is the time of the steps,
    without validations and checkpoints.
    """

    points: list[Point]
    steps: int
    seconds: float
    step: int  # step of the weights that the training returns
    device: torch.device  # device of this process
    devices: int  # total number of devices, over all processes


_MACHINE = {"accelerator", "devices", "strategy", "precision", "accumulate_grad_batches"}  # these affect the speed
WARMING, MEASURED = 5, 25  # numbers of steps that measure the time per step: warm-up steps, all steps


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
    compile: bool = False,
    cuda_graph: bool = True,
) -> Fitted:
    """Train `objective` in place; return the learning curve, the time, and the devices.

    A resumed run ends with the same weights, bit for bit, as an uninterrupted run.

    Args:
        objective: trained in place, and left on the CPU in eval mode.
        batches: the training data.
        seed: seed of all random numbers within training steps.
        epochs: length of the run in epochs. If `max_steps` or `seconds` allow fewer steps, the learning-rate schedule
            is shortened in proportion.
        optimizer: function that returns the optimizer of an objective.
        schedule: function that returns the factor on the learning rate for a step; see `retable.training.schedules`.
        clip_norm: maximum norm of the gradient, or None for no clipping.
        trainer: settings of Lightning's Trainer (accelerator, devices, strategy, precision and any others).
        scratch: folder of checkpoints. If the folder contains `last.ckpt`, the run resumes from this checkpoint or, if
            it is damaged, from the previous checkpoint.
        checkpoint_every: number of steps between checkpoints.
        validations: number of validations per epoch; may be below 1. There is always a validation after the last step.
        validation: the Measure of validations, or None to skip validations.
        log: function that is called with new points of the learning curve, and with values that `callbacks` log.
        averaging: function that decides when weight averaging begins; see `Training`.
        max_steps: maximum number of steps.
        seconds: time budget of the training. To convert the time to steps, the time per step is measured on a copy of
            the objective before the first step, and saved in `scratch`.
        best: settings of early stopping, or None. With early stopping, `objective` ends with the weights of the best
            validation.
        callbacks: Lightning callbacks of the training. The callbacks do not run while the time per step is measured for
            `seconds`.
        compile, cuda_graph: see `Training`.

    Raises:
        UsageError: a checkpoint contains more than weights and numbers.
        Stopped: a signal arrived in a process that listens for signals. Before the error is raised, a checkpoint is
            written.
    """
    _keep_freed_memory()
    all_steps = max(round(epochs * batches.steps_per_epoch), 1)
    if seconds is not None:
        kept = scratch / "seconds.json"
        if not kept.exists():
            module = Training(
                copy.deepcopy(objective), seed, MEASURED, optimizer, schedule, clip_norm, epochs,
                compile=compile, cuda_graph=cuda_graph,
            )  # fmt: skip
            (begun := scratch / "seconds.begun").write_text(
                json.dumps(_seconds_per_step(module, batches, trainer, scratch))
            )
            os.replace(begun, kept)
        within = max(int(seconds / json.loads(kept.read_text())), 1)
        max_steps = within if max_steps is None else min(max_steps, within)
    max_steps = all_steps if max_steps is None else min(max_steps, all_steps)
    checkpoint = latest(scratch / "last.ckpt")
    validate_every, log_every = max(round(batches.steps_per_epoch / validations), 1), max(max_steps // 200, 1)
    progress = Progress(
        scratch, checkpoint_every=checkpoint_every, print_every=validate_every, log_every=log_every, log=log, best=best,
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
            "logger": PointLogger(log) if callbacks else False,
            "enable_model_summary": False,
            "enable_progress_bar": bool(bar),
            "use_distributed_sampler": False,
        }
        # `trainer` can set the interval between validations in epochs instead of steps.
        if "check_val_every_n_epoch" in trainer or isinstance(trainer.get("val_check_interval"), float):
            settings |= {"val_check_interval": 1.0, "check_val_every_n_epoch": 1}
        runner = L.Trainer(**{**settings, **trainer})
        if runner.num_devices > 1 and runner.strategy.root_device.type == "cpu":
            limit_threads(runner.num_devices)
        trained = copy.deepcopy(objective) if sharded else objective  # sharding cannot be undone, so train a copy
        training = Training(
            trained, seed, max_steps, optimizer, schedule, clip_norm, epochs, averaging, compile, cuda_graph
        )
        data = Data(batches, validation)
        try:
            with step_end:
                runner.fit(training, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        except UnpicklingError:
            raise UsageError(
                f"{checkpoint} is refused: loading it could run code, because it contains more than weights and "
                "numbers; delete this file, and other files of the same origin next to it, to train from the start"
            ) from None
        training.finish()
        if sharded:
            gather(trained, objective)
    objective.to("cpu").eval()
    step = progress.best_step()
    if step is not None:
        runner.strategy.barrier()  # wait until the first process has written the best weights
        load_weights(objective, require_weights(progress.best_weights))
        runner.strategy.barrier()  # wait until all processes have read the weights, before the folder is removed
    else:
        step = runner.global_step
    device = runner.strategy.root_device
    return Fitted(progress.points, progress.steps, progress.seconds, step, device, runner.world_size)


class _Clock(L.Callback):
    """A callback that records the time at which each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, trainer: L.Trainer, _: Any, __: Any, ___: Any, batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0:
            self.times.append(time.perf_counter())


def _seconds_per_step(training: Training, batches: Batches, trainer: Mapping[str, Any], scratch: Path) -> float:
    """Measure the median time per step, in seconds, after a few warm-up steps."""
    if trainer.get("devices", 1) != 1:
        raise UsageError("a time budget can only be measured on one device; write the budget in flops or tokens")
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
    """Let glibc keep freed memory, instead of returning it to the system at every step.

    Kept memory avoids page faults: a training step of a small model takes a quarter less time (51 instead of 66 ms for
    an LSTM of Zaremba's small size).
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        for option, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 << 20)):  # options MMAP_MAX, TRIM_THRESHOLD, TOP_PAD
            mallopt(option, value)


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Suppress Lightning's banner and its warnings, such as warnings about data loaders.

    If Lightning rejects a setting, UsageError is raised.
    """
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
    """Print one line instead of Lightning's log record about a process that died.

    Lightning itself ends the other processes.
    """
    if "terminated with code" not in record.getMessage():
        return True
    print(f"error: {PARTNER_LOST}", file=sys.stderr, flush=True)
    return False


logging.getLogger("lightning.fabric.strategies.launchers.subprocess_script").addFilter(_in_one_line)
