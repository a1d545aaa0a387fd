"""Construction of models, objectives and batches from a configuration and a tokenizer."""

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

Settings = Mapping[str, Any]  # the resolved settings of a cell

# Constructor parameters that the tokenizer supplies if the configuration omits them, and for each the tokenizer's
# attribute that contains the value.
FACTS = {
    "vocab_size": "vocab_size",
    "source_vocab_size": "source_vocab_size",
    "boundary": "boundary",
    "words": "words",
    "marks": "special_ids",
}


def build_model(cfg: Settings, text: "Text", **other: Any) -> "Model":
    """Build the model that `cfg["model"]` describes.

    Args:
        cfg: resolved settings of a cell.
        text: a tokenizer; for a model that reads words letter by letter, the vocabulary of words.
        other: settings that override those of `cfg["model"]`.

    Raises: UsageError: the class in `cfg["model"]` is not a `Model`, so no objective can train it.
    """
    from retable.models.base import Model

    kind = settings.target_of(cfg["model"], "model")
    if not settings.makes(kind, Model):
        raise UsageError(
            f"{kind.__name__} is not a retable.models.base.Model, so no objective can train it; derive it from a "
            "class of that module, such as LeftToRight, or write objective=null for a counted model"
        )
    return _build({**cfg["model"], **other}, "model", Model, text)


def build_counted(cfg: Settings, text: "Text") -> CountedModel:
    """Build the counted model (such as an n-gram model) that `cfg["model"]` describes.

    Args:
        cfg: a composed configuration.
        text: the tokenizer or vocabulary, which supplies constructor parameters that the configuration omits, such as
            `vocab_size` and `boundary`.

    Raises: UsageError: the class in `cfg["model"]` is not a counted model.
    """
    kind = settings.target_of(cfg["model"], "model")
    if not settings.makes(kind, CountedModel):
        raise UsageError(
            f"{kind.__name__} is not a counted model: it lacks one of the attributes protocol, estimate, "
            "log_prob, save and load; write a recipe such as counted/kn5, or objective=causal_lm"
        )
    return _build(cfg["model"], "model", CountedModel, text)


def build_objective(cfg: Settings, tokenizer: Tokenizer, model: "Model") -> "Objective":
    """Build the objective that `cfg["objective"]` describes, for `model`.

    Args:
        cfg: a composed configuration.
        tokenizer: supplies constructor parameters, such as `vocab_size`, that the configuration omits.

    Raises: UsageError: the class in `cfg["objective"]` is not an objective, or it does not accept one of the settings.
    """
    from retable.objectives.base import Objective

    return _build(cfg["objective"], "objective", Objective, tokenizer, model=model)


def build_batches(cfg: Settings, tokenizer: Tokenizer, folder: Path, split: str, seed: int) -> "Batches":
    """Build the batches that `cfg["batches"]` describes, from a split that the `tokenize` stage wrote to `folder`.

    Args:
        folder: the cell of the `tokenize` stage, with `<split>.bin` and `<split>.units.npy`.
        seed: random seed for the order of the batches and for the corruption of their tokens, such as masking.

    Raises: UsageError: a file is missing, or the class in `cfg["batches"]` does not accept one of the settings.
    """
    from retable.data.batches import Batches

    parameters = settings.parameters(cfg["batches"], "batches")
    facts: dict[str, Any] = {
        "tokens": read_tokens(require(folder / f"{split}.bin"), tokenizer.vocab_size),
        "seed": seed,
    }
    if "units" in parameters:
        facts["units"] = np.load(require(folder / f"{split}.units.npy"))
    if "line_end" in parameters:
        # If the tokenizer has no token for a line's end, the boundary token marks line ends in a stream.
        facts["line_end"] = [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    return _build(cfg["batches"], "batches", Batches, tokenizer, **facts)


def takes_setting(part: Settings, name: str) -> bool:
    """Check whether the class that `part` configures has a constructor parameter `name`.

    Raises: UsageError: `part` does not name a class.
    """
    return name in settings.parameters(part, "a part")


def _build(part: Settings, name: str, place: Any, text: "Text", **given: Any) -> Any:
    parameters = settings.parameters(part, name)
    facts = {
        fact: getattr(text, attribute) for fact, attribute in FACTS.items() if fact in parameters and fact not in part
    }
    return settings.build(part, name, place, **facts, **given)
