"""Protocols of systems that are loaded from cells, for code that generates, scores and measures.

They are protocols because any object with these methods counts as a language model. N tokens, S systems, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # so that scoring a counted model does not import torch
    from retable.objectives.base import Objective


@runtime_checkable
class System(Protocol):
    """A system of any kind."""

    protocol: str  # in words: the context that a token is predicted from, and other facts that affect scores


@runtime_checkable
class LanguageModel(System, Protocol):
    """A language model of any kind, counted or trained."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Return the natural log-probability (N,), float64, of every token of a stream (N,)."""
        ...


@runtime_checkable
class CountedModel(LanguageModel, Protocol):
    """A language model in closed form, such as an n-gram model."""

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (N,), replacing its previous contents."""
        ...

    def save(self, path: Path) -> None:
        """Write the model to a file; equal models give equal bytes."""
        ...

    def load(self, path: Path) -> None:
        """Load the model from a file that `save` wrote.

        Raises: UsageError: the file is damaged, or of another model.
        """
        ...


@runtime_checkable
class PredictiveModel(Protocol):
    """A language model that gives the distribution of the next token, such as an n-gram model."""

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Return the natural log-probability (V,), float64, of every token after a context (length,), the stream so
        far.
        """
        ...


@runtime_checkable
class MixedSystem(System, Protocol):
    """A weighted average of the probabilities of language models; the weights (S,) sum to 1."""

    systems: Sequence[LanguageModel]
    weights: np.ndarray


@runtime_checkable
class TrainedSystem(System, Protocol):
    """A trained system with its training objective."""

    objective: "Objective"


@runtime_checkable
class AdaptedSystem(LanguageModel, Protocol):
    """A trained language model that continues to learn while it reads (dynamic evaluation)."""

    @property
    def adapted(self) -> TrainedSystem:
        """The model before adaptation."""
        ...
