"""Loading of a trained system for use from Python."""

from pathlib import Path
from typing import TYPE_CHECKING

from retable.core.compressed import file_of
from retable.core.systems import SentenceEncoder
from retable.inference.find import find_cell

if TYPE_CHECKING:
    from retable.inference.language import Language
    from retable.inference.sentences import Sentences
    from retable.inference.tasks import TaskSystem
    from retable.inference.vectors import Vectors


def load(name: str | Path, device: str = "cpu") -> "Language | Vectors | Sentences | TaskSystem":
    """Load the trained system of a cell; the system's attribute `can` lists its methods.

    The loaded system gives the same results as the stages that evaluate it.

    Args:
        name: the folder of a cell, the name of a cell in `outputs/` of the working folder (`pretrain/grammar/gpt-1` or
            `gpt-1`), the MLflow run of a cell of this project (`runs:/<id>`), or a file of word vectors.
        device: the device of the weights, such as `cuda`.

    Raises: UsageError: the cell does not exist or a file in it is missing.
    """
    if file_of(name).is_file():
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
    if isinstance(system, SentenceEncoder):
        from retable.inference.sentences import Sentences

        return Sentences(cell, system).to(device)
    from retable.inference.language import Language

    return Language(cell, system).to(device)
