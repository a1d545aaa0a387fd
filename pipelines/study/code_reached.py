"""Determine the code that a cell depends on from the cell's stage and configuration."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.config.project import CODE
from retable.core import trust
from retable.core.stages import TASK_STAGES, module_of
from retable.planning.fingerprint import Code

# The parts of a configuration from which a loaded system is rebuilt. The other parts affected only the weights of the
# system.
LOADED = ("tokens", "model", "objective", "batches", "scorer", "encoder", "adaptation", "cells", "task", "head")


def code() -> Code:
    """Return the code of the project and of the packages that the user trusts."""
    return code_of(tuple(trust.sources().items()))


@cache
def code_of(trusted: tuple[tuple[str, Path], ...]) -> Code:
    """Return the code of the project and of `trusted`, the names and folders of other packages."""
    return Code(CODE | dict(trusted))


def own_part(stage: str, configuration: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without the settings of the corpus that only the stage `prepare` uses."""
    if stage == "prepare" or "corpus" not in configuration:
        return configuration
    read = {key: value for key, value in configuration["corpus"].items() if key in ("unit", "vocabulary")}
    return configuration | {"corpus": read}


def entry_points_of(stage: str, own: Mapping[str, Any], *others: Any) -> list[str]:
    """Return the full names at which a stage's code starts: the stage's function and each `_target_`.

    Args:
        stage: name of the stage.
        own: the stage's configuration.
        others: further configurations from which the stage builds objects.
    """
    verb = "finetune" if stage in TASK_STAGES else stage
    if stage == "pretrain":
        verb = "adopt" if own.get("encoder") else "count" if own["objective"] is None else "learn"
    if stage == "scaling":
        verb = "law" if "resamples" in own else "layers"
    return [f"{module_of(stage)}.{verb}", *sorted(targets([own, *others]))]


def targets(value: Any) -> set[str]:
    """Return all `_target_` values in a configuration. A part that occurs several times is searched only once."""
    names, seen, waiting = set[str](), set[int](), [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping | list) and id(each) not in seen:
            seen.add(id(each))
            waiting += each.values() if isinstance(each, Mapping) else each
            if isinstance(each, Mapping) and isinstance(each.get("_target_"), str):
                names.add(each["_target_"])
    return names
