"""Devices on which stages run trained systems, as set by the config group `trainer`."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from retable.core.errors import UsageError
from retable.core.systems import AdaptedSystem, MixedSystem, SentenceEncoder, System, TrainedSystem

if TYPE_CHECKING:  # not imported at run time, since n-gram models do not need torch
    from torch import nn


@contextlib.contextmanager
def on_devices(cfg: DictConfig, *systems: System) -> Iterator[dict[str, Any]]:
    """Move the trained parts of systems to the device that `cfg.trainer` selects, until the block ends.

    Count-based models always run on the CPU, in one process.

    Yields: the accelerator and the number of devices, for the cell's record.
    Raises: UsageError: a system is a sentence encoder, and the trainer has several devices or another precision.
    """
    if any(isinstance(system, SentenceEncoder) for system in systems):
        _require_plain(cfg.trainer)
    trained = [each for system in systems for each in _trained(system)]
    if not trained:
        yield {"accelerator": "cpu", "devices": 1}
        return
    from retable.training.use import used_on

    with used_on(trained, dict(cfg.trainer)):
        yield {"accelerator": cfg.trainer.accelerator, "devices": cfg.trainer.devices}


def _require_plain(trainer: DictConfig) -> None:
    """Raise UsageError for settings that need Lightning, because an encoder computes without Lightning."""
    for name, only in (("precision", "32-true"), ("devices", 1)):
        if trainer[name] != only:
            raise UsageError(
                f"trainer.{name}={trainer[name]} has no effect on a sentence encoder; write trainer.{name}={only}"
            )


def _trained(system: System) -> Iterator["nn.Module"]:
    if isinstance(system, MixedSystem):
        for each in system.systems:
            yield from _trained(each)
    elif isinstance(system, AdaptedSystem):
        yield system.adapted.objective
    elif isinstance(system, TrainedSystem):
        yield system.objective
    elif isinstance(system, SentenceEncoder):
        yield system.model
