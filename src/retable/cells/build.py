"""Models, objectives and batches from their configuration, with the facts that their constructors ask for by name."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from hydra.utils import get_class, instantiate

from retable.artifacts import require
from retable.errors import UsageError
from retable.systems import CountedModel
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

if TYPE_CHECKING:
    from retable.data.batches import Batches
    from retable.models.base import Model
    from retable.objectives.base import Objective
    from retable.tasks.base import Text

Settings = Mapping[str, Any]  # of a cell, resolved

# What a constructor may ask for that its configuration does not say, and what the tokenizer calls it.
FACTS = {"vocab_size": "vocab_size", "boundary": "boundary", "words": "words", "marks": "special_ids"}


def build_model(cfg: Settings, text: "Text", **settings: Any) -> "Model":
    """The model that `cfg` describes, but for `settings`; `text` is a tokenizer, or a vocabulary of words that it is to
    spell. UsageError for one that is not learnt."""
    from retable.models.base import Model

    model = _build(cfg["model"], text, **settings)
    if not isinstance(model, Model):
        raise UsageError(
            f"{type(model).__name__} is no retable.models.base.Model, which an objective could train; derive it from a "
            "kind that stands there, such as LeftToRight, or for a model that counts write objective=null"
        )
    return model


def build_counted(cfg: Settings, text: "Text") -> CountedModel:
    """The model in closed form that `cfg` describes. UsageError for one that is not counted."""
    model = _build(cfg["model"], text)
    if not isinstance(model, CountedModel):
        raise UsageError(
            f"{type(model).__name__} is not counted: it lacks one of protocol, estimate, log_prob, save and load; take "
            "a recipe such as counted/kn5, or write objective=causal_lm"
        )
    return model


def build_objective(cfg: Settings, tokenizer: Tokenizer, model: "Model") -> "Objective":
    """The objective that `cfg` describes, on top of `model`."""
    return _build(cfg["objective"], tokenizer, model=model)


def build_batches(cfg: Settings, tokenizer: Tokenizer, folder: Path, split: str, seed: int) -> "Batches":
    """The batches that `cfg` describes, of a split that the encode stage left in `folder`."""
    facts: dict[str, Any] = {
        "tokens": read_tokens(require(folder / f"{split}.bin"), tokenizer.vocab_size),
        "seed": seed,
    }
    if asks(cfg["batches"], "units"):
        facts["units"] = np.load(require(folder / f"{split}.units.npy"))
    if asks(cfg["batches"], "line_end"):
        # Where a tokenizer reads no token in a line's end, the boundary stands for it in a stream.
        facts["line_end"] = [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    return _build(cfg["batches"], tokenizer, **facts)


def asks(part: Settings, name: str) -> bool:
    """Whether the constructor of what `part` describes has a parameter of this name."""
    return name in inspect.signature(get_class(part["_target_"])).parameters


def _build(part: Settings, text: "Text", **given: Any) -> Any:
    facts = {name: getattr(text, its) for name, its in FACTS.items() if asks(part, name) and name not in part}
    return instantiate(part, _partial_=True)(**facts, **given)  # Hydra would read what it is given as configuration
