"""The code that a cell's numbers come of, by its stage and its configuration."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pipelines.project import CODE
from retable.plan.fingerprint import Code

# What a system that another stage loads is built from again; the rest of its configuration went into its weights.
LOADED = ("tokens", "model", "objective", "batches", "scorer", "cells")


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
    verb = stage
    if stage == "pretrain":
        verb = "count" if own["objective"] is None else "learn"
    return [f"pipelines.{stage}.{verb}", *sorted({target for part in (own, *others) for target in _targets(part)})]


def _targets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _targets(each)
