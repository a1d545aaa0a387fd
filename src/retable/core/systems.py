"""Interfaces of the systems that are loaded from cells, for code that generates texts, scores texts or runs benchmarks.

The interfaces are protocols, so that any object with these methods counts as a language model.

Shapes: N tokens, S systems, V vocabulary, n texts, D vector size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # not imported at run time, since n-gram models do not need torch
    from torch import nn

    from retable.objectives.base import Objective


@runtime_checkable
class System(Protocol):
    """A system of any kind."""

    protocol: str  # a description of the context that tokens are predicted from, and of other facts that affect scores


@runtime_checkable
class LanguageModel(System, Protocol):
    """A language model of any kind, estimated from counts or trained by gradient descent."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Compute the natural log-probabilities, (N,) float64, of the tokens of a stream, (N,)."""
        ...


@runtime_checkable
class CountedModel(LanguageModel, Protocol):
    """A language model that is estimated from counts, such as an n-gram model."""

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream of tokens, (N,); a previous estimate is discarded."""
        ...

    def save(self, path: Path) -> None:
        """Write the model to a file; equal models result in equal bytes."""
        ...

    def load(self, path: Path) -> None:
        """Load the model from a file that `save` wrote.

        Raises: UsageError: the file is damaged, or contains another model.
        """
        ...


@runtime_checkable
class PredictiveModel(Protocol):
    """A language model that can compute the distribution of the next token."""

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Compute the natural log-probability of every token of the vocabulary as the next token, (V,) float64.

        context: the tokens of the stream so far, (length,).
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
class SentenceEncoder(System, Protocol):
    """A system that computes one vector per text, such as a BERT with a pooling.

    model: the trained model, whose device the encoder uses.
    """

    model: "nn.Module"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return one vector per text, (n, D) float32."""
        ...


@runtime_checkable
class AdaptedSystem(LanguageModel, Protocol):
    """A language model that continues to train on the evaluated text (dynamic evaluation)."""

    @property
    def adapted(self) -> TrainedSystem:
        """The trained system before adaptation."""
        ...
