"""Models, objectives and batches from their configuration, with the facts that their constructors ask for by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retable.core import settings
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.systems import CountedModel
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

if TYPE_CHECKING:
    from retable.data.batches import Batches
    from retable.models.base import Model
    from retable.objectives.base import Objective
    from retable.tasks.base import Text

Settings = Mapping[str, Any]  # of a cell, resolved

# What a constructor may ask for that its configuration does not say, and what the tokenizer calls it.
FACTS = {"vocab_size": "vocab_size", "boundary": "boundary", "words": "words", "marks": "special_ids"}


def build_model(cfg: Settings, text: "Text", **other: Any) -> "Model":
    """The model that `cfg` describes, but for `other` settings; `text` is a tokenizer, or a vocabulary of words that it
    is to spell. UsageError for one that is not learnt."""
    from retable.models.base import Model

    kind = settings.target_of(cfg["model"], "model")
    if not settings.makes(kind, Model):
        raise UsageError(
            f"{kind.__name__} is no retable.models.base.Model, which an objective could train; derive it from a "
            "kind that stands there, such as LeftToRight, or for a model that counts write objective=null"
        )
    return _build({**cfg["model"], **other}, "model", Model, text)


def build_counted(cfg: Settings, text: "Text") -> CountedModel:
    """The model in closed form that `cfg` describes. UsageError for one that is not counted."""
    kind = settings.target_of(cfg["model"], "model")
    if not settings.makes(kind, CountedModel):
        raise UsageError(
            f"{kind.__name__} is not counted: it lacks one of protocol, estimate, log_prob, save and load; take "
            "a recipe such as counted/kn5, or write objective=causal_lm"
        )
    return _build(cfg["model"], "model", CountedModel, text)


def build_objective(cfg: Settings, tokenizer: Tokenizer, model: "Model") -> "Objective":
    """The objective that `cfg` describes, on top of `model`."""
    from retable.objectives.base import Objective

    return _build(cfg["objective"], "objective", Objective, tokenizer, model=model)


def build_batches(cfg: Settings, tokenizer: Tokenizer, folder: Path, split: str, seed: int) -> "Batches":
    """The batches that `cfg` describes, of a split that the stage tokenize left in `folder`."""
    from retable.data.batches import Batches

    wanted = settings.parameters(cfg["batches"], "batches")
    facts: dict[str, Any] = {
        "tokens": read_tokens(require(folder / f"{split}.bin"), tokenizer.vocab_size),
        "seed": seed,
    }
    if "units" in wanted:
        facts["units"] = np.load(require(folder / f"{split}.units.npy"))
    if "line_end" in wanted:
        # Where a tokenizer reads no token in a line's end, the boundary stands for it in a stream.
        facts["line_end"] = [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    return _build(cfg["batches"], "batches", Batches, tokenizer, **facts)


def asks(part: Settings, name: str) -> bool:
    """Whether the constructor of what `part` describes has a parameter of this name."""
    return name in settings.parameters(part, "a part")


def _build(part: Settings, name: str, place: Any, text: "Text", **given: Any) -> Any:
    wanted = settings.parameters(part, name)
    facts = {fact: getattr(text, its) for fact, its in FACTS.items() if fact in wanted and fact not in part}
    return settings.build(part, name, place, **facts, **given)
