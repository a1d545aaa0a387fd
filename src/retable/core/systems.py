"""What a system that comes back from its cell is to those who write, score and measure with it.

These are protocols, for a counted model is anything that has their methods. N tokens, S systems, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # a counted model is scored without torch
    from retable.objectives.base import Objective


@runtime_checkable
class System(Protocol):
    """A system of any kind."""

    protocol: str  # the context that a token is predicted from, or what else its scores depend on, in words


@runtime_checkable
class LanguageModel(System, Protocol):
    """A language model of any kind, counted or trained."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """The natural log-probability (N,), float64, of every token of a stream (N,)."""
        ...


@runtime_checkable
class CountedModel(LanguageModel, Protocol):
    """A language model in closed form."""

    def estimate(self, tokens: np.ndarray) -> None:
        """Take the model from a stream (N,), in place of what it held."""
        ...

    def save(self, path: Path) -> None:
        """Write it; equal models give equal bytes."""
        ...

    def load(self, path: Path) -> None:
        """Take over what `save` wrote. UsageError for a file that is damaged, or of another model."""
        ...


@runtime_checkable
class PredictiveModel(Protocol):
    """A language model that says which token comes next, such as an n-gram model."""

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """The natural log-probability (V,), float64, of every token after a context (length,), the stream so far."""
        ...


@runtime_checkable
class MixedSystem(System, Protocol):
    """The average of language models' probabilities, with weights (S,) of sum 1."""

    systems: Sequence[LanguageModel]
    weights: np.ndarray


@runtime_checkable
class TrainedSystem(System, Protocol):
    """A system that was trained, with the objective that it was trained by."""

    objective: "Objective"


@runtime_checkable
class AdaptedSystem(LanguageModel, Protocol):
    """A trained language model that goes on learning while it reads."""

    @property
    def adapted(self) -> TrainedSystem:
        """The model as it was trained."""
        ...
