"""Tasks by their names."""

from typing import TYPE_CHECKING, Any

from hydra import compose

from retable.settings import build

if TYPE_CHECKING:
    from retable.tasks.base import Task


def build_task(name: str) -> "Task[Any, Any]":
    """The task of this name, as it is configured."""
    return build(compose(f"task/{name}", overrides=[f"+task_name={name}"]).task, "task")
