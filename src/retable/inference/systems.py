"""Loading of trained systems from their cells, as described by each cell's `config.yaml`.

A cell contains all files of its system, including the tokenizer, so it can be moved. Only systems that measure an
objective on held-out text read that text from the outputs of the `tokenize` stage.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from retable.core import settings
from retable.core.artifacts import require
from retable.core.compressed import file_of
from retable.core.digests import remedy
from retable.core.errors import UsageError
from retable.core.systems import LanguageModel, System
from retable.inference.build import Settings, build_batches, build_counted, build_model, build_objective
from retable.tokenizers.tokenizer import Tokenizer

# files and folders that `load_system` reads
SYSTEM = ("config.yaml", "model.safetensors", "tokenizer.json", "vectors.bin", "parts")


def read_config(cell: Path) -> Settings:
    """Return the resolved settings of a cell.

    Raises: UsageError: `config.yaml` is missing or damaged.
    """
    path = require(cell / "config.yaml")
    try:
        config = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise UsageError(f"{path} is damaged; {remedy(path)}")
    return config


def load_system(cell: Path) -> System:
    """Load the system of a cell; the class of its objective determines the kind of system.

    Returns: a language model (for ELMo, one per direction), word vectors, a sentence encoder, or a trained objective
        with a method `held_out(split)` that computes its metrics on a split.
    """
    cfg = read_config(cell)
    if "adaptation" in cfg:
        return _load_adapted(cfg, cell)
    if "model" not in cfg and "cells" not in cfg:  # imported word vectors
        return load_vectors(require(cell / "vectors.bin"))
    weights = require(cell / "model.safetensors")
    if "cells" in cfg:
        return _load_mixture(weights, parts_of(cell))
    tokenizer = Tokenizer.load(require(cell / "tokenizer.json"))
    if "encoder" in cfg:
        return _load_encoder(cfg, weights, tokenizer)
    if cfg["objective"] is None:
        counted = build_counted(cfg, tokenizer)
        counted.load(weights)
        return counted

    from retable.objectives.base import LanguageModelling, TwoWayLikelihood, VectorLearning
    from retable.training.weights import load_weights

    if settings.makes(settings.target_of(cfg["objective"], "objective"), VectorLearning):
        return load_vectors(require(cell / "vectors.bin"), _ngram_composer(cfg, weights, tokenizer.words))
    model = build_model(cfg, tokenizer)
    objective = build_objective(cfg, tokenizer, model).eval()
    load_weights(objective, weights)
    if isinstance(objective, LanguageModelling):
        from retable.evaluation.likelihood import NeuralLM, Scorer

        return NeuralLM(objective, settings.build(cfg["scorer"], "scorer", Scorer), tokenizer.boundary)
    if isinstance(objective, TwoWayLikelihood):
        from retable.evaluation.bidirectional import BothDirections

        return BothDirections(objective, tokenizer)
    from retable.evaluation.held_out import SEED, PretrainedObjective

    folder = Path("outputs/tokenize", cfg["tokens"])
    return PretrainedObjective(objective, lambda split: build_batches(cfg, tokenizer, folder, split, SEED))


def _load_encoder(cfg: Settings, weights: Path, tokenizer: Tokenizer) -> System:
    from retable.evaluation.sentence_encoder import PooledEncoder
    from retable.training.weights import load_weights

    model = build_model(cfg, tokenizer)
    load_weights(model, weights)
    return settings.build(cfg["encoder"], "encoder", PooledEncoder, model=model, tokenizer=tokenizer)


def load_language_model(cell: Path) -> LanguageModel:
    """Load from `cell` a language model that is part of a mixture.

    Raises: UsageError: the cell is not a language model.
    """
    system = load_system(cell)
    if not isinstance(system, LanguageModel):
        raise UsageError(f"{cell} is not a language model, so a mixture cannot contain it; remove it from cells")
    return system


def parts_of(cell: Path) -> list[Path]:
    """Return the cells inside the cell of a mixture or adapted system.

    Raises: UsageError: the folder `parts` contains a file that is not a part, or a symbolic link (links may form a
        cycle).
    """
    parts = [*require(cell / "parts").iterdir()]
    for part in parts:
        if part.is_symlink() or not part.name.isdecimal():
            raise UsageError(f"{part} is not part of a mixture; {remedy(cell)}")
    return sorted(parts, key=lambda part: int(part.name))


def carry_parts(cells: Sequence[Path], folder: Path) -> None:
    """Copy the systems inside a mixture or an adapted system into its cell.

    Raises: UsageError: a file of a system is missing or damaged.
    """
    for number, cell in enumerate(cells):
        (part := folder / "parts" / str(number)).mkdir(parents=True)
        for name in SYSTEM:
            if (source := cell / name).is_dir():
                shutil.copytree(source, part / name)
            elif source.exists():
                shutil.copy(require(source), part / name)


def _load_mixture(path: Path, cells: list[Path]) -> System:
    from retable.evaluation.mixture import Mixture
    from retable.training.weights import read_weights

    return Mixture([load_language_model(cell) for cell in cells], read_weights(path)["weights"].numpy())


def _load_adapted(cfg: Settings, cell: Path) -> System:
    from retable.evaluation.adaptation import Adaptation
    from retable.evaluation.likelihood import NeuralLM
    from retable.training.weights import read_weights

    weights = read_weights(require(cell / "model.safetensors"))
    parts = [load_system(part) for part in parts_of(cell)]
    if len(parts) != 1 or not isinstance(parts[0], NeuralLM):
        raise UsageError(f"{cell / 'parts'} should contain one trained language model; {remedy(cell)}")
    return settings.build(cfg["adaptation"], "adaptation", Adaptation).adapted(parts[0], weights)


def load_vectors(path: Path, compose: Callable[[str], np.ndarray] | None = None) -> System:
    """Load word vectors from a file in a format of `vector_files`.

    The words in the file are assumed to be in order of falling frequency.

    Args:
        compose: None, or a function that returns the vector, (D,), of a word that is not in the file.

    Raises: UsageError: the file is missing or damaged.
    """
    from retable.evaluation.word_vectors import WordVectors
    from retable.models.vector_files import read_vectors

    require(file_of(path))
    return WordVectors(*read_vectors(path), compose)


def _ngram_composer(cfg: Settings, weights: Path, words: list[str]) -> Callable[[str], np.ndarray] | None:
    """Return a function from strings to vectors for fastText with character n-grams, and None for other models."""
    from retable.models.base import VectorModel
    from retable.training.weights import load_weights, read_weights

    kind: Any = settings.target_of(cfg["model"], "model")
    if not (settings.makes(kind, VectorModel) and kind.composes):
        return None
    model = settings.build(cfg["model"], "model", VectorModel, words=words)
    owner, name, _ = next(key for key in read_weights(weights) if "model." in key).partition("model.")
    # `owner` is the prefix of the weights of the objective, or of its word-by-word trainer.
    load_weights(model, weights, prefix=owner + name)
    return model.vector if len(model.units) > len(words) else None  # Without character n-grams, each word is one unit.
