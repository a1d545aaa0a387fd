"""Optional loggers and callbacks of a training: a progress file, pruning in a search, a learning-rate finder."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.loggers import Logger

from retable.training.curve import Point
from retable.training.signals import Pruned

Log = Callable[[Sequence[Point]], None]


def point_log(logger: Logger) -> Log:
    """Return a function that logs points to `logger`, grouped by step; each point is logged only once."""
    logged: set[tuple[int, str]] = set()

    def log(points: Sequence[Point]) -> None:
        for step, of_step in groupby(points, key=lambda point: point.step):
            values = {name: value for _, name, value in of_step if (step, name) not in logged}
            logged.update((step, name) for name in values)
            if values:
                logger.log_metrics(values, step)
        logger.save()

    return log


class PointLogger(Logger):
    """A logger that passes values from callbacks, as points of the curve, to the function `log` of `fit`."""

    name, version = "retable", 0

    def __init__(self, log: Log):
        super().__init__()
        self._log = log

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._log([Point(step or 0, name, float(value)) for name, value in metrics.items()])

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


class Steps(L.Callback):
    """A callback that writes `<step>/<number of steps>` of a training to a file, up to three times per second."""

    def __init__(self, path: Path):
        self._path, self._kept = path, 0.0

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.is_global_zero and (now := time.monotonic()) > self._kept + 0.3:
            self._kept = now
            self._path.write_text(f"{trainer.global_step}/{trainer.max_steps}", encoding="utf-8")


class Pruning(L.Callback):
    """Reports each validation to a hyperparameter search, and raises Pruned if the search stops the training.

    Pruned is raised in all processes.

    report: function of a step and the metrics of its validation; returns whether to stop the training. For the last
        step, the returned value is ignored.
    """

    def __init__(self, report: Callable[[int, Mapping[str, float]], bool]):
        self._report = report

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        step = trainer.global_step
        metrics = {f"validation/{name}": value for name, value in pl_module.validation.items()}
        ends = trainer.is_global_zero and self._report(step, metrics)
        if trainer.strategy.broadcast(ends) and step < trainer.max_steps:
            raise Pruned(step)


class RateFinder(LearningRateFinder):
    """Lightning's learning-rate finder (a range test; Smith 2017), changed so that it only reports a rate.

    The finder prints the suggested rate, and saves a plot of the loss against the rate in the file `figure`.
    """

    def __init__(self, figure: str, **settings: Any):
        super().__init__(update_attr=False, **settings)
        self._figure = Path(figure)

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_fit_start(trainer, pl_module)
        if self.optimal_lr is None or not trainer.is_global_zero:  # a fast dev run has too few steps
            return
        rate = self.optimal_lr.suggestion()
        advice = "no rate is suggested: there is no loss for every step" if rate is None else f"optimizer.lr={rate:.2g}"
        figure: Any = self.optimal_lr.plot(suggest=True)
        self._figure.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(self._figure)
        print(f"learning-rate finder: {advice}; the loss by rate is plotted in {self._figure}")


def full_rate(step: int, epoch: float, max_steps: int, losses: Sequence[float], **settings: float) -> float:
    """Return 1: a constant learning rate. Settings of the recipe's schedule are accepted and ignored."""
    return 1.0
