"""Work between training steps: learning curve, checkpoints, early stopping, progress lines."""

import math
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from safetensors.torch import save_file

from retable.core.errors import UsageError
from retable.training.checkpoints import keep, keep_weights
from retable.training.curve import Point
from retable.training.signals import StepEnd, Stopped
from retable.training.weights import whole_weights


class Best(NamedTuple):
    """Settings of early stopping: the training returns the weights of the best validation.

    Training stops after `patience` successive validations that are not better than the best earlier validation.
    """

    metric: str  # a metric of the learning curve, such as validation/accuracy; lower is better only for a loss
    patience: int  # 1 or more

    def value(self, point: Point) -> float:
        """Return a point's value, or minus the value if it is a loss, so that higher is better."""
        return -point.value if self.metric.endswith("/loss") else point.value


class Progress(Checkpoint):
    """A callback that records the learning curve, and writes checkpoints, which also contain the curve.

    New points of the curve are logged after each checkpoint. Lightning runs a Checkpoint callback after all other
    callbacks, so the checkpoint contains the other callbacks' states of the same step. The last step of a training is
    always validated.

    If `step_end` has received a signal, the callback writes a checkpoint after the step and raises Stopped. A resumed
    run logs all points after its checkpoint a second time, with the same values, so `log` must accept duplicates. At
    the end, `steps` is the number of steps in this process, and `seconds` the time of these steps, without validations
    and checkpoints.
    """

    def __init__(
        self,
        scratch: Path,
        checkpoint_every: int,
        print_every: int,
        log_every: int,
        log: Callable[[list[Point]], None],
        best: Best | None,
        step_end: StepEnd,
    ):
        self.points: list[Point] = []
        self.best_weights = scratch / "best.safetensors"
        self._best, self._step_end = best, step_end
        self._checkpoint = scratch / "last.ckpt"
        self._checkpoint_every, self._print_every, self._log_every = checkpoint_every, print_every, log_every
        self._log = log
        self.steps, self.seconds = 0, 0.0
        self._logged = 0
        self._sums: dict[str, float] = {}
        self._summed = 0
        self._pending: dict[str, torch.Tensor] = {}
        self._mean: Callable[[torch.Tensor], Any] = lambda value: value  # mean over processes

    def state_dict(self) -> dict[str, Any]:
        self._sum_pending()
        return {
            "points": [tuple(point) for point in self.points],
            "sums": self._sums,
            "summed": self._summed,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.points = [Point(*point) for point in state_dict["points"]]
        self._sums, self._summed = state_dict["sums"], state_dict["summed"]

    def losses(self) -> list[float]:
        """Return the validation losses so far."""
        return [point.value for point in self.points if point.metric == "validation/loss"]

    def best_step(self) -> int | None:
        """Return the step of the (first) best validation so far, or None without early stopping."""
        validations = self._validations()
        return max(validations, key=self._best.value).step if self._best is not None and validations else None

    def _validations(self) -> list[Point]:
        return [point for point in self.points if self._best is not None and point.metric == self._best.metric]

    def _is_over(self) -> bool:
        """Check whether none of the last `patience` validations was better than the best validation before them."""
        worse = [point for point in self._validations() if point.step > (self.best_step() or 0)]
        return self._best is not None and len(worse) >= self._best.patience

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        trainer.should_stop = trainer.should_stop or self._is_over()
        self._started = time.monotonic(), trainer.global_step
        if trainer.world_size > 1:
            self._mean = partial(trainer.strategy.reduce, reduce_op="mean")
        self._paused = 0.0
        self._step_end.begin()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        for name, value in pl_module.metrics.items():
            self._pending[name] = self._pending[name] + value.double() if name in self._pending else value.double()
        self._summed += 1
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        step, last = trainer.global_step, trainer.global_step == trainer.max_steps
        if step % self._log_every == 0 or last:
            self._sum_pending()
            self._require_finite(step)
            self.points += [Point(step, f"train/{k}", v / self._summed) for k, v in sorted(self._sums.items())]
            self._sums, self._summed = {}, 0
        self._stopped = time.monotonic()
        self.seconds, self.steps = self._stopped - self._started[0] - self._paused, step - self._started[1]
        trainer.should_stop = trainer.should_stop or last  # makes Lightning validate
        if (step % self._print_every == 0 or last) and not trainer.enable_validation:
            self._print(trainer)
        loop: Any = trainer.fit_loop
        # `_should_check_val_fx` is Lightning's test whether a validation follows this step. If a validation follows,
        # the checkpoint is written after the validation.
        if not loop.epoch_loop._should_check_val_fx(loop._data_fetcher):
            self._save_if_due(trainer)
            self._paused += time.monotonic() - self._stopped

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        metrics = trainer.strategy.broadcast(pl_module.validation)
        self.points += [Point(trainer.global_step, f"validation/{k}", v) for k, v in metrics.items()]
        if self.best_step() == trainer.global_step:
            with pl_module.averaged():  # the weights that the validation used
                weights = whole_weights(pl_module.objective)  # all processes must call this
                if trainer.is_global_zero:
                    save_file(weights, written := self.best_weights.with_suffix(".partial"))
                    keep_weights(written, self.best_weights)
        pl_module.validated(self.losses())
        self._print(trainer)
        over = self._is_over()
        trainer.should_stop = trainer.should_stop or over
        self._save_if_due(trainer, over)
        self._paused += time.monotonic() - self._stopped

    def _save_if_due(self, trainer: L.Trainer, over: bool = False) -> None:
        """Write a checkpoint if one is due: at its interval, at the end, or if any process has received a signal.

        After a signal, all processes raise Stopped.
        """
        step, received = trainer.global_step, self._step_end.received
        ends: bool = trainer.strategy.reduce_boolean_decision(received is not None, all=False)
        if over or ends or step % self._checkpoint_every == 0 or step == trainer.max_steps:
            self._save(trainer)
        if ends:
            raise Stopped(received or signal.SIGTERM, f" after step {step} of {trainer.max_steps}, with a checkpoint")

    def _sum_pending(self) -> None:
        """Add pending sums, averaged over processes, to the sums in the CPU's memory.

        Only this method synchronises with the device and with other processes; steps between two calls do not.
        """
        for name, value in sorted(self._pending.items()):
            self._sums[name] = self._sums.get(name, 0.0) + self._mean(value).item()
        self._pending = {}

    def _require_finite(self, step: int) -> None:
        for name, value in self._sums.items():
            if not math.isfinite(value):
                raise UsageError(
                    f"the training has diverged: {name} is {value} at step {step}; lower optimizer.lr, or clip_norm"
                )

    def _save(self, trainer: Any) -> None:
        written = self._checkpoint.with_suffix(".partial")
        if not trainer.fast_dev_run:
            trainer.save_checkpoint(written)
        if trainer.is_global_zero:
            if not trainer.fast_dev_run:
                keep(written, self._checkpoint)
            self._log(self.points[self._logged :])
            self._logged = len(self.points)

    def _print(self, trainer: L.Trainer) -> None:
        if not trainer.is_global_zero:
            return
        seconds, first = time.monotonic() - self._started[0], self._started[1]
        done, total = trainer.global_step, trainer.max_steps
        left = seconds / max(done - first, 1) * (total - done)
        latest = {point.metric: point.value for point in self.points}
        figures = "  ".join(f"{name} {value:.4f}" for name, value in sorted(latest.items()))
        print(f"step {done}/{total}  {figures}  {left / 60:.1f} min left", file=sys.stderr, flush=True)
