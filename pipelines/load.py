"""Trained systems back from their cells, by the `config.yaml` that they were trained with."""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from retable.artifacts import require
from retable.tokenizers.tokenizer import Tokenizer


def load_system(cell: Path) -> Any:
    """The system in `cell`: a language model with `log_prob(tokens)`, or word vectors; each names its `protocol`."""
    cfg = OmegaConf.load(require(cell / "config.yaml"))
    weights = require(cell / "model.safetensors")
    tokenizer = Tokenizer.load(require(Path("outputs/tokenize", cfg.tokens, "tokenizer.json")))
    if cfg.objective is None:
        model = instantiate(cfg.model, vocab_size=tokenizer.vocab_size, boundary=tokenizer.boundary)
        model.load(weights)
        return model

    from retable.training.weights import load_weights, read_weights

    if "scorer" not in cfg:
        from retable.evaluation.analogies import WordVectors

        return WordVectors(tokenizer.words, read_weights(weights)["model.centre.weight"].numpy())

    from retable.evaluation.likelihood import NeuralLM

    model = instantiate(cfg.model, vocab_size=tokenizer.vocab_size)
    objective = instantiate(cfg.objective, model=model, vocab_size=tokenizer.vocab_size).eval()
    load_weights(objective, weights)
    return NeuralLM(objective, instantiate(cfg.scorer), tokenizer.boundary)
