"""Lightning's loggers and callbacks beside those of a training, and what shows whether a model learns at all."""

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


def handed_to(logger: Logger) -> Log:
    """Hand points on to a logger, those of a step together, and none twice."""
    handed: set[tuple[int, str]] = set()

    def log(points: Sequence[Point]) -> None:
        for step, of_step in groupby(points, key=lambda point: point.step):
            values = {name: value for _, name, value in of_step if (step, name) not in handed}
            handed.update((step, name) for name in values)
            if values:
                logger.log_metrics(values, step)
        logger.save()

    return log


class Handed(Logger):
    """What callbacks log, as points."""

    name, version = "retable", 0

    def __init__(self, log: Log):
        super().__init__()
        self._log = log

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._log([Point(step or 0, name, float(value)) for name, value in metrics.items()])

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


class Steps(L.Callback):
    """Keeps in a file how far a training is, `step/of`, a few times a second."""

    def __init__(self, path: Path):
        self._path, self._kept = path, 0.0

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.is_global_zero and (now := time.monotonic()) > self._kept + 0.3:
            self._kept = now
            self._path.write_text(f"{trainer.global_step}/{trainer.max_steps}", encoding="utf-8")


class Pruning(L.Callback):
    """Tells a search each validation, by `report(step, metrics)`, and raises Pruned in all processes if that says so.
    Behind the last step nothing is ended."""

    def __init__(self, report: Callable[[int, Mapping[str, float]], bool]):
        self._report = report

    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        step = trainer.global_step
        metrics = {f"validation/{name}": value for name, value in pl_module.validation.items()}
        ends = trainer.is_global_zero and self._report(step, metrics)
        if trainer.strategy.broadcast(ends) and step < trainer.max_steps:
            raise Pruned(step)


class RateFinder(LearningRateFinder):
    """Lightning's learning-rate finder (a range test; Smith 2017), which prints the rate it suggests and draws the loss
    by the rate to `figure`. The training that follows keeps its own rate."""

    def __init__(self, figure: str, **settings: Any):
        super().__init__(update_attr=False, **settings)
        self._figure = Path(figure)

    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        super().on_fit_start(trainer, pl_module)
        if self.optimal_lr is None or not trainer.is_global_zero:  # None: a fast dev run, which has too few steps
            return
        rate = self.optimal_lr.suggestion()
        said = (
            "no rate is suggested: the loss is not known step by step" if rate is None else f"optimizer.lr={rate:.2g}"
        )
        drawn: Any = self.optimal_lr.plot(suggest=True)
        self._figure.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(self._figure)
        print(f"learning-rate finder: {said}; {self._figure} has the loss by the rate")


def full_rate(step: int, epoch: float, max_steps: int, losses: Sequence[float], **settings: float) -> float:
    """No schedule, whatever settings a recipe has for its own."""
    return 1.0
