"""Base classes for the kinds of objectives, with the methods that training and evaluation call.

Shapes: V vocabulary, B batch, T time, D d_model.
"""

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.models.base import BothDirections, EncoderDecoder, LeftToRight, Model


class Objective(nn.Module):
    """A training loss, together with the model and the output layers (head) that it needs."""

    model: Model

    def loss(self, batch: Any, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """Compute the loss of a batch, its metrics, and the state with which the next batch starts.

        `state` is a recurrent model's state after the previous batch; before the first batch, it is None. `step` is the
        number of the training step.
        """
        raise NotImplementedError

    def predict(self, batch: Any) -> Tensor | list[Any]:
        """Return one prediction for each example of a task's batch."""
        raise NotImplementedError


class Likelihood(Objective):
    """An objective that computes the probabilities of a text's tokens."""

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the log-probabilities of `labels`, fp32 (B, T) in nats, and the next state.

        `labels` (B, T) contains the token that follows each of `input_ids` (B, T).
        """
        raise NotImplementedError


class LanguageModelling(Likelihood):
    """An objective for left-to-right models that also computes next-token distributions."""

    model: LeftToRight

    @property
    def start(self) -> Any:
        """Return the state for the first call of `next_log_prob`; each call returns the state for the next call."""
        return self.model.start

    def next_log_prob(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the next token's log-probabilities, fp32 (B, V) in nats, and the next state.

        `input_ids` (B, T) are the tokens that come after `state`. For the first tokens of a text, pass `start` as the
        state.
        """
        raise NotImplementedError


class TwoWayLikelihood(Likelihood):
    """An objective that computes likelihoods in both directions; the model's two directions share no hidden states."""

    model: BothDirections

    def log_prob(
        self, input_ids: Tensor, labels: Tensor, state: Any = None, backward: bool = False
    ) -> tuple[Tensor, Any]:
        """Compute `Likelihood.log_prob`; if `backward` is True, callers pass the tokens in reverse order."""
        raise NotImplementedError


class CountsWords(Objective):
    """An objective that needs to know, before training, how often each word occurs in the text."""

    def count(self, counts: ArrayLike) -> None:
        """Set the number of occurrences of each word, (V,)."""
        raise NotImplementedError


class PartlyRead(Objective):
    """An objective with weight matrices of which only a part is used for each training token."""

    def unread_weights(self) -> float:
        """Return how many weights of the objective's matrices are not used for a training token, on average."""
        raise NotImplementedError


class VectorLearning(Objective):
    """An objective that trains one vector per word."""

    def vectors(self) -> Tensor:
        """Return the words' vectors (V, D), without gradient."""
        raise NotImplementedError


class Writing(Objective):
    """An objective whose model reads one sequence and writes another sequence token by token."""

    model: EncoderDecoder
    start_id: int | None = None  # id of the decoder's first input; None stands for the end mark

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the next token's logits, fp32 (B, V), for the model's hidden states (B, D)."""
        raise NotImplementedError


class SelfUpdating(nn.Module):
    """A module that updates its own weights, pair by pair, without an optimizer."""

    def update(self, batch: Any, step: int, lr: float, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Train on a batch, and return its metrics. The function `total` sums a tensor over all processes."""
        raise NotImplementedError


def embedding_of(model: Model) -> nn.Embedding:
    """Return the model's table of input word vectors, whose weights a softmax can share.

    Raises: UsageError: the model has no table of input word vectors.
    """
    if (embedding := model.input_embedding) is None:
        raise UsageError(
            f"{type(model).__name__} has no word embedding for the softmax to share; write objective.tie=false"
        )
    return embedding


def tie_softmax(head: nn.Linear, model: Model) -> None:
    """Make the softmax layer `head` share the weights of the model's input embedding.

    Raises: UsageError: the model has no embedding, or the embedding's shape differs from the softmax layer's shape.

    Press and Wolf 2017; Inan et al. 2017.
    """
    embedding = embedding_of(model)
    if embedding.weight.shape != head.weight.shape:
        raise UsageError(
            f"an embedding of {embedding.embedding_dim} dimensions cannot be the softmax of a model with "
            f"{model.d_model} dimensions; write objective.tie=false, or make both widths equal"
        )
    head.weight = embedding.weight
