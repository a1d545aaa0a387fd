"""Load a trained system, to use it."""

from pathlib import Path
from typing import TYPE_CHECKING

from retable.inference.find import find_cell

if TYPE_CHECKING:
    from retable.inference.language import Language
    from retable.inference.tasks import TaskSystem
    from retable.inference.vectors import Vectors


def load(name: str | Path, device: str = "cpu") -> "Language | Vectors | TaskSystem":
    """The system of a cell, which says in `can` what it can do; its numbers are those of the stages.

    name: the folder of a cell, wherever it stands; `pretrain/grammar/gpt-1` or `gpt-1` below `outputs/` of the working
        folder; `runs:/<id>`, the run of a cell of this project in MLflow; or a file of word vectors.
    device: where its weights go, as in `cuda`.

    UsageError where there is no such cell, or where something of it is missing.
    """
    if Path(name).is_file():
        from retable.inference.vectors import Vectors

        return Vectors.of_file(Path(name))
    from retable.inference.systems import load_system, read_config

    cell = find_cell(name)
    if "task" in read_config(cell):
        from retable.inference.tasks import load_task

        return load_task(cell).to(device)
    system = load_system(cell)

    from retable.evaluation.word_vectors import WordVectors

    if isinstance(system, WordVectors):
        from retable.inference.vectors import Vectors

        return Vectors(cell, system)
    from retable.inference.language import Language

    return Language(cell, system).to(device)
