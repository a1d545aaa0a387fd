"""Loading of a task's trained objective, without the task's data."""

from pathlib import Path
from typing import Any

from retable.core import settings
from retable.core.artifacts import require
from retable.inference.build import build_model
from retable.inference.systems import read_config
from retable.inference.texts import tokenizer_files
from retable.objectives.base import Objective
from retable.tasks.base import Task
from retable.tokenizers.tokenizer import Tokenizer
from retable.training.weights import load_weights

FILES = ("config.yaml", "tokenizer.json", "model.safetensors")  # files of a cell that `load_objective` reads


def load_objective(cell: Path) -> tuple[Task[Any, Any], Tokenizer, Objective]:
    """Load the task, tokenizer and trained objective of a cell whose model reads tokens."""
    config = read_config(cell)
    task = settings.build(config["task"], "task", Task)
    tokenizer = Tokenizer.load(tokenizer_files(cell / "tokenizer.json")[0])
    objective = task.objective(build_model(config, tokenizer), tokenizer, **config["head"])
    load_weights(objective, require(cell / "model.safetensors"))
    return task, tokenizer, objective.eval()
