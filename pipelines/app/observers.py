"""Who looks on while a stage trains, by the groups `logger` and `callbacks`, and the trial of a search."""

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
    """What hands points on to each logger of `cfg` but MLflow, which have been told the `settings`. UsageError where
    the library of one is missing."""
    made = {name: _made("logger", name, each) for name, each in (cfg.get("logger") or {}).items() if name != "mlflow"}
    if not made:
        yield []
        return
    from retable.training.observers import handed_to

    for logger in made.values():
        logger.log_hyperparams(settings)
    try:
        yield [handed_to(logger) for logger in made.values()]
    finally:
        for logger in made.values():
            logger.finalize("finished")


def callbacks(cfg: DictConfig) -> list[Any]:
    """Return the callbacks of a training: those that `cfg` names, and those of each training.

    With RETABLE_PROGRESS, a file's path, one more keeps there how far it is; in a search one may end the training.
    """
    from retable.training.callbacks import Minutes, Rates, ValidationLoss

    made = [_made("callbacks", name, each) for name, each in (cfg.get("callbacks") or {}).items()]
    made += [Minutes(), Rates(), ValidationLoss(taught)]
    if path := environment.progress():
        from retable.training.observers import Steps

        made.append(Steps(path))
    if (trial := environment.trial()) is not None:
        from retable.training.observers import Pruning

        made.append(Pruning(reporter(**trial)))
    return made


def taught(measure: Any, piece: Any) -> Any:
    """Return the places and the batch of those examples of a piece of a task's validation that can be trained on.

    None if there are none, or if the measure has a loss of its own.
    """
    import numpy as np

    from retable.evaluation.prediction import Predictions

    if not isinstance(measure, Predictions):
        return None
    # By its private name: a new name would have the cells of all tasks made again.
    places, encoded = piece[0], measure._encoded
    if encoded.taught is None or (kept := np.isin(places, encoded.taught)).all():
        return piece
    return (places[kept], encoded.pad(places[kept])) if kept.any() else None


def _made(group: str, name: str, part: Any) -> Any:
    try:
        return build(part, f"{group}.{name}", within="")
    except ModuleNotFoundError as error:
        raise UsageError(f"{group}={name}: {' '.join(str(error).split())}") from error


def reporter(
    storage: str, study: str, trial: int, metric: str, pruner: Mapping[str, Any]
) -> Callable[[int, Mapping[str, float]], bool]:
    """Of a job: what tells the search a validation, and whether that has the trial end."""
    known = optuna.load_study(study_name=study, storage=storage, pruner=instantiate(pruner))
    frozen = next(each for each in known.get_trials(deepcopy=False) if each.number == trial)
    return Reporter(optuna.Trial(known, frozen._trial_id), set(frozen.intermediate_values), metric)


class Reporter:
    def __init__(self, trial: optuna.Trial, reported: set[int], metric: str):
        self._trial, self._reported, self._metric = trial, reported, metric

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        if self._metric not in metrics:
            return False
        if step not in self._reported:  # a run that goes on from a checkpoint validates again
            self._trial.report(metrics[self._metric], step)
        return self._trial.should_prune()
