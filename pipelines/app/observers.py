"""Observers of training: loggers and callbacks of the config groups `logger` and `callbacks`, and a search's pruner."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import optuna
from hydra.utils import instantiate
from omegaconf import DictConfig

from pipelines.config import environment
from retable.core.errors import UsageError
from retable.core.settings import build


@contextlib.contextmanager
def loggers(cfg: DictConfig, settings: dict[str, Any]) -> Iterator[list[Callable[[Sequence[Any]], None]]]:
    """Yield, for each logger of `cfg` except MLflow, a function that logs points of a learning curve.

    `settings` are logged first.

    Raises: UsageError: a logger's library is not installed.
    """
    made = {name: _made("logger", name, each) for name, each in (cfg.get("logger") or {}).items() if name != "mlflow"}
    if not made:
        yield []
        return
    from retable.training.observers import point_log

    for logger in made.values():
        logger.log_hyperparams(settings)
    try:
        yield [point_log(logger) for logger in made.values()]
    finally:
        for logger in made.values():
            logger.finalize("finished")


def callbacks(cfg: DictConfig) -> list[Any]:
    """Return the callbacks of a training run: the callbacks in `cfg`, and the callbacks that every run has.

    If RETABLE_PROGRESS names a file, a further callback writes the progress to this file. In a search, a further
    callback may stop the training.
    """
    from retable.training.callbacks import Minutes, Rates, ValidationLoss

    made = [_made("callbacks", name, each) for name, each in (cfg.get("callbacks") or {}).items()]
    made += [Minutes(), Rates(), ValidationLoss(trainable_rows)]
    if path := environment.progress():
        from retable.training.observers import Steps

        made.append(Steps(path))
    if (trial := environment.trial()) is not None:
        from retable.training.observers import Pruning

        made.append(Pruning(reporter(**trial)))
    return made


def trainable_rows(measure: Any, batch: Any) -> Any:
    """Reduce a validation batch to the examples that have a training loss.

    Returns: the positions of these examples in the split, and the batch of these examples. The result is None if no
    example has a training loss, or if the measure computes its own loss.
    """
    import numpy as np

    from retable.evaluation.prediction import Predictions

    if not isinstance(measure, Predictions):
        return None
    # The attribute `_encoded` keeps its private name: a new name would change the fingerprint of all tasks' cells.
    places, encoded = batch[0], measure._encoded
    if encoded.trainable is None or (kept := np.isin(places, encoded.trainable)).all():
        return batch
    return (places[kept], encoded.pad(places[kept])) if kept.any() else None


def _made(group: str, name: str, part: Any) -> Any:
    try:
        return build(part, f"{group}.{name}", within="")
    except ModuleNotFoundError as error:
        raise UsageError(f"{group}={name}: {' '.join(str(error).split())}") from error


def reporter(
    storage: str, study: str, trial: int, metric: str, pruner: Mapping[str, Any]
) -> Callable[[int, Mapping[str, float]], bool]:
    """Return a function that reports validation metrics to the search and returns whether to prune the trial."""
    known = optuna.load_study(study_name=study, storage=storage, pruner=instantiate(pruner))
    frozen = next(each for each in known.get_trials(deepcopy=False) if each.number == trial)
    return Reporter(optuna.Trial(known, frozen._trial_id), set(frozen.intermediate_values), metric)


class Reporter:
    def __init__(self, trial: optuna.Trial, reported: set[int], metric: str):
        self._trial, self._reported, self._metric = trial, reported, metric

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        if self._metric not in metrics:
            return False
        if step not in self._reported:  # a run that resumes from a checkpoint may repeat a validation
            self._trial.report(metrics[self._metric], step)
        return self._trial.should_prune()
