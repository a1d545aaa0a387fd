"""Callbacks that only report: one progress line per minute, the learning rate, the validation loss of a task."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L
import numpy as np
import torch

from retable.data.bucketed import on_device
from retable.training.curve import Point
from retable.training.observers import PointLogger


class Minutes(L.Callback):
    """Prints the step, the mean loss since the last printed line, and the time left, once per minute.

    A validation also prints a line (see `Progress`), and starts a new minute. So a training with more than one
    validation per minute prints only the lines of validations.
    """

    def __init__(self, every: float = 60.0):
        self._every = every  # seconds

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._started, self._first = time.monotonic(), trainer.global_step
        self._begin_line()

    def _begin_line(self) -> None:
        self._printed, self._summed = time.monotonic(), 0
        self._sums: dict[str, torch.Tensor] = {}

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._begin_line()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
        for name, value in pl_module.metrics.items():
            self._sums[name] = self._sums[name] + value.double() if name in self._sums else value.double()
        self._summed += 1

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        # The line is printed at the start of a batch, because a validation after the previous step has already printed
        # its line by then.
        now, done, total = time.monotonic(), trainer.global_step, trainer.max_steps
        if now < self._printed + self._every or done == self._first:
            return
        if trainer.is_global_zero:
            means = (f"train/{name} {value.item() / self._summed:.4f}" for name, value in sorted(self._sums.items()))
            left = (now - self._started) / (done - self._first) * (total - done)
            line = "  ".join([f"step {done}/{total}", *means, f"{left / 60:.1f} min left"])
            print(line, file=sys.stderr, flush=True)
        self._begin_line()


class Rates(L.Callback):
    """Logs the learning rate as `train/learning_rate`, at the steps at which the learning curve has a training loss."""

    def __init__(self) -> None:
        self._points: list[Point] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        step, every = trainer.global_step + 1, trainer.log_every_n_steps
        logs = (every and step % every == 0) or step == trainer.max_steps
        if logs and batch_idx % trainer.accumulate_grad_batches == 0:
            self._points.append(Point(step, "train/learning_rate", float(trainer.optimizers[0].param_groups[0]["lr"])))

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._log_collected(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._log_collected(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: Any, exception: BaseException) -> None:
        self._log_collected(trainer)

    def _log_collected(self, trainer: L.Trainer) -> None:
        log_points(trainer, self._points)
        self._points = []


class ValidationLoss(L.Callback):
    """Logs the mean loss of a task's validation examples as `validation/loss`.

    The callback is needed because the task's Measure evaluates only predictions. The loss is sent only to the loggers:
    it is not part of the learning curve, and does not affect which validation is the best.

    trainable: function of the Measure and a batch. The function returns the indices of the examples for which a loss
        can be computed, and a batch of these examples, or None if there are no such examples.
    """

    def __init__(self, trainable: Callable[[Any, Any], tuple[np.ndarray, Any] | None]):
        self._trainable = trainable

    def on_validation_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._sum, self._examples = 0.0, 0

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if batch is None or trainer.state.fn != "fit":
            return
        if (with_loss := self._trainable(trainer.datamodule.validation, batch)) is None:
            return
        places, examples = with_loss
        with torch.inference_mode(), torch.autocast(pl_module.device.type, enabled=False):
            _, metrics, _ = pl_module.objective.loss(on_device(pl_module.device, examples), None, trainer.global_step)
        self._sum += metrics["loss"].item() * len(places)
        self._examples += len(places)

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        sums = torch.tensor([self._sum, self._examples], dtype=torch.float64)
        if trainer.world_size > 1 and not pl_module.sharded:  # with sharded weights, each process measures all examples
            sums = trainer.strategy.reduce(sums.to(pl_module.device), reduce_op="sum")
        total, examples = sums.tolist()
        if examples and not trainer.sanity_checking:
            log_points(trainer, [Point(trainer.global_step, "validation/loss", total / examples)])


def log_points(trainer: L.Trainer, points: Sequence[Point]) -> None:
    """Send points of the curve to the loggers of a training that `fit` runs."""
    if points and trainer.is_global_zero and isinstance(trainer.logger, PointLogger):
        trainer.logger._log(points)
