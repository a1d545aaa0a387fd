"""The code that a cell's numbers come of, by its stage and its configuration."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.config.project import CODE
from retable.core import trust
from retable.core.stages import TASK_STAGES, module_of
from retable.planning.fingerprint import Code

# What a system that another stage loads is built from again; the rest of its configuration went into its weights.
LOADED = ("tokens", "model", "objective", "batches", "scorer", "adaptation", "cells", "task", "head")


def code() -> Code:
    """The project's own, and that of the packages that the user trusts."""
    return code_of(tuple(trust.sources().items()))


@cache
def code_of(trusted: tuple[tuple[str, Path], ...]) -> Code:
    """The project's own, and that of other packages by their names and folders."""
    return Code(CODE | dict(trusted))


def own_part(stage: str, configuration: dict[str, Any]) -> dict[str, Any]:
    """The configuration without how the corpus is written, which is stage prepare's: others read the files."""
    if stage == "prepare" or "corpus" not in configuration:
        return configuration
    read = {key: value for key, value in configuration["corpus"].items() if key in ("unit", "vocabulary")}
    return configuration | {"corpus": read}


def reached_by(stage: str, own: Mapping[str, Any], *others: Any) -> list[str]:
    """Where the code begins that a stage with the configuration `own` runs: the stage, and each `_target_`.

    `others` are configurations that it builds from beside its own.
    """
    verb = "finetune" if stage in TASK_STAGES else stage
    if stage == "pretrain":
        verb = "count" if own["objective"] is None else "learn"
    return [f"{module_of(stage)}.{verb}", *sorted(targets([own, *others]))]


def targets(value: Any) -> set[str]:
    """Those in a value. What stands in several places, as anchors do in YAML, is looked at once."""
    found, seen, waiting = set[str](), set[int](), [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping | list) and id(each) not in seen:
            seen.add(id(each))
            waiting += each.values() if isinstance(each, Mapping) else each
            if isinstance(each, Mapping) and isinstance(each.get("_target_"), str):
                found.add(each["_target_"])
    return found
