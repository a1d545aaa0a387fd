"""Export a cell as an ARPA file, word vectors or a Hugging Face checkpoint: `retable export kn5-1 kn5.arpa`."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import retable
from retable.core.artifacts import read_json, read_run
from retable.core.digests import digest
from retable.core.errors import UsageError


def export_cell(cell: str, place: Path, license: str) -> None:
    """Export a cell atomically.

    Args:
        cell: name or folder of the cell.
        place: for a checkpoint, a new or empty folder. For other formats, a file .arpa, .txt or .bin; an existing file
            is replaced.
        license: the license for the model card, as an identifier of the Hugging Face Hub such as `apache-2.0`.

    Raises: UsageError: `place` cannot be written or is inside a cell, or the cell cannot be exported in this format.
    """
    system = retable.load(cell)
    place = place.resolve()
    for folder in (place, *place.parents):
        if (folder / "run.json").exists():
            raise UsageError(f"{place} is in the cell {folder}; write a path outside of cells")
    if not place.parent.is_dir():
        raise UsageError(f"folder {place.parent} does not exist; make it, or write another path")
    write = {".arpa": _write_arpa, ".txt": _write_vectors, ".bin": _write_vectors}.get(place.suffix)
    if write is not None and place.is_dir():
        raise UsageError(f"{place} is a folder; write the name of a file")
    if write is None and (place.is_file() or (place.is_dir() and any(place.iterdir()))):
        raise UsageError(f"{place} exists; write the name of a new or an empty folder")
    with TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as scratch:
        begun = Path(scratch, place.name)
        (write or partial(_write_checkpoint, license=license))(system, begun)
        os.replace(begun, place)


def _write_arpa(system: Any, file: Path) -> None:
    from retable.models.arpa import write_arpa
    from retable.models.ngram import BackoffModel

    if not isinstance(system.system, BackoffModel):
        raise UsageError(
            f"{system.folder} is not an n-gram model, and an ARPA file can contain only an n-gram model; "
            "write a cell such as kn5-1"
        )
    write_arpa(system.system, system.tokenizer.words, file)


def _write_vectors(system: Any, file: Path) -> None:
    from retable.inference.vectors import Vectors
    from retable.models.vector_files import write_word2vec

    if not isinstance(system, Vectors):
        raise UsageError(
            f"{system.folder} has no word vectors to write to a {file.suffix} file; write a cell such as skipgram-1"
        )
    write_word2vec(file, system.words, system.system.vectors)


def _write_checkpoint(system: Any, folder: Path, license: str) -> None:
    from retable.core.escaping import markdown
    from retable.core.systems import TrainedSystem
    from retable.exchange import export
    from retable.exchange.card import Card, Result
    from retable.inference.language import Language
    from retable.inference.sentences import Sentences
    from retable.inference.tasks import Classifier, Tagger, TaskSystem
    from retable.tokenizers.tokenizer import Tokenizer

    if isinstance(system, Sentences):
        raise UsageError(
            f"{system.folder} is a sentence encoder, and sentence encoders are not exported; write a cell such as gpt-1"
        )
    labels: Sequence[str] = ()
    if isinstance(system, Language) and isinstance(system.system, TrainedSystem):
        objective, tokenizer = system.system.objective, system.tokenizer
    elif isinstance(system, TaskSystem) and isinstance(system.text, Tokenizer):
        objective, tokenizer = system.objective, system.text
        labels = system.labels if isinstance(system, Classifier) else ()
        labels = system.task.tags if isinstance(system, Tagger) else labels
    else:
        raise UsageError(
            f"{system.folder} is not a neural model of tokens, so transformers cannot load it; "
            "write a cell such as gpt-1"
        )
    run, cell = read_run(system.folder), system.folder
    trained = "imported" not in run
    of = f"trained on {run['corpus']} with seed {run['seed']}" if trained else f"from {run['imported']}"
    about = markdown(f"System {run['system']}, {of}.")
    results = []
    if cell.parts[-4:-3] == ("outputs",):  # only cells in outputs/ can have scores
        file, weights = "/".join([*cell.parts[-4:], "model.safetensors"]), digest(cell / "model.safetensors")
        measured = Path(*cell.parts[:-3], "evaluate", *cell.parts[-2:])
        scores = {}
        if (measured / "metrics.json").exists() and read_run(measured)["digests"].get(file) == weights:
            scores = read_json(measured / "metrics.json")  # scores measured with other weights are left out
        for name, value in scores.items():
            split, _, metric = name.rpartition("/")
            results.append(Result(metric, value, run["corpus"], split or None))
    name = "-".join(cell.parts[-2:])
    card = Card(name, about, license, [run["corpus"]] if trained else [], results)
    export.export(objective, tokenizer, folder, card, labels)
