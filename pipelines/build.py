"""Models from their configuration and the tokenizer whose ids they read."""

import inspect
from typing import Any

from hydra.utils import get_class, instantiate
from omegaconf import DictConfig

from retable.tokenizers.tokenizer import Tokenizer


def build_model(cfg: DictConfig, tokenizer: Tokenizer) -> Any:
    """The model that `cfg` describes, with what its constructor asks of the tokenizer."""
    facts = {"vocab_size": tokenizer.vocab_size, "boundary": tokenizer.boundary, "words": tokenizer.words}
    asked = inspect.signature(get_class(cfg.model._target_)).parameters
    return instantiate(cfg.model, **{name: fact for name, fact in facts.items() if name in asked})
