"""The code that a cell's numbers come of, by its stage and its configuration."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pipelines.project import CODE
from retable.plan.cell import TASK_STAGES, module_of
from retable.plan.fingerprint import Code

# What a system that another stage loads is built from again; the rest of its configuration went into its weights.
LOADED = ("tokens", "model", "objective", "batches", "scorer", "adaptation", "cells", "task", "head")


@cache
def code() -> Code:
    """The project's own."""
    return Code(CODE)


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
    return [f"{module_of(stage)}.{verb}", *sorted(_targets([own, *others]))]


def _targets(value: Any) -> set[str]:
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
