"""Who looks on while a stage trains, by the groups `logger` and `callbacks`, and whether `debug` was chosen."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipelines import swept
from retable.errors import UsageError
from retable.settings import build

# Settings of which no number of a cell comes: who is told of it, and on what a stage computes that only uses a system.
AROUND = ("logger", "accelerator", "devices")


def debugging(overrides: Sequence[str]) -> bool:
    """Whether `debug=` was chosen: a person tries something, and what comes of it is no cell of the pipeline."""
    return any(each.startswith("debug=") for each in overrides)


def in_mlflow(cfg: DictConfig, overrides: Sequence[str]) -> bool:
    """Whether a run stands in MLflow: that of every stage, unless it has other loggers, or debugs."""
    return "mlflow" in cfg.get("logger", {"mlflow": {}}) and not debugging(overrides)


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
    """Those of Lightning that `cfg` names, which look on at a training; with RETABLE_PROGRESS, a file's path, one more
    that keeps there how far it is; in a search one that may end it."""
    made = [_made("callbacks", name, each) for name, each in (cfg.get("callbacks") or {}).items()]
    if told := os.environ.get("RETABLE_PROGRESS"):
        from retable.training.observers import Steps

        made.append(Steps(Path(told)))
    if (trial := swept.trial()) is not None:
        from pipelines.search import reporter
        from retable.training.observers import Pruning

        made.append(Pruning(reporter(**trial)))
    return made


def _made(group: str, name: str, part: Any) -> Any:
    try:
        return build(part, f"{group}.{name}", within="")
    except ModuleNotFoundError as error:
        raise UsageError(f"{group}={name}: {' '.join(str(error).split())}") from error
