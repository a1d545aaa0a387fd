"""Loading of a discriminator that steers decoding."""

from retable.core import settings
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.generation.steered import Discriminator
from retable.inference.find import find_cell
from retable.inference.objective import FILES, load_objective
from retable.inference.systems import read_config
from retable.objectives.prefix_classification import PrefixClassification
from retable.tasks.prefixes import PrefixTask


def load_discriminator(cell: str) -> Discriminator:
    """Load a discriminator, a classifier of unfinished texts, from a cell.

    Args:
        cell: name or path of a cell, as for `retable.load`.

    Raises: UsageError: the cell's system does not classify unfinished texts, or a file is missing.
    """
    folder = find_cell(cell)
    task = read_config(folder).get("task")
    if task is None or not settings.makes(settings.target_of(task, f"{folder}: task"), PrefixTask):
        raise UsageError(
            f"{folder} cannot classify the beginning of a text; train a system that can, as in python -m "
            "pipelines.finetune task=sentiment_prefixes recipe=encoders/lstm_prefixes"
        )
    task, tokenizer, objective = load_objective(folder)
    assert isinstance(task, PrefixTask) and isinstance(objective, PrefixClassification)
    files = [require(folder / name) for name in FILES]
    return Discriminator(objective, task.labels.names, tokenizer.boundary, tokenizer.digest, files)
