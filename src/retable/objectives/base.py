"""What an objective is to those who train and measure by it: each says its kind by its class.

V vocabulary, B batch, T time, D d_model.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.models.base import BothDirections, EncoderDecoder, LeftToRight, Model


class Objective(nn.Module):
    """What training makes small: a loss of batches, by a model and a head of the objective's own."""

    model: Model

    def loss(self, batch: Any, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """The loss of a batch, of a kind of the objective's own; its metrics; and the state that the next batch starts
        from, as recurrent models carry one: `state` is that after the batch before, None before the first."""
        raise NotImplementedError

    def predict(self, batch: Any) -> Tensor | list[Any]:
        """What it says of each example of a batch, where it is a task's: a row an example."""
        raise NotImplementedError


class Likelihood(Objective):
    """The probabilities of a text's tokens."""

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) inputs and successors to the successors' log-probabilities, (B, T) in fp32, and the state after."""
        raise NotImplementedError


class LanguageModelling(Likelihood):
    """The same from left to right alone, and of whatever token may come next."""

    model: LeftToRight

    @property
    def start(self) -> Any:
        """The state before the first token, from which on the state is kept."""
        return self.model.start

    def next_log_prob(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, T) tokens after `state`, at first `start`, to the log-probabilities (B, V) of the token after the
        last of them, in fp32, and the state after it."""
        raise NotImplementedError


class TwoWayLikelihood(Likelihood):
    """The same from either side, by a model whose directions never meet."""

    model: BothDirections

    def log_prob(
        self, input_ids: Tensor, labels: Tensor, state: Any = None, backward: bool = False
    ) -> tuple[Tensor, Any]:
        """With `backward` the tokens stand in the order of the backward direction, a text's last first."""
        raise NotImplementedError


class CountsWords(Objective):
    """An objective that is told, before it trains, how often the text has each word."""

    def count(self, counts: ArrayLike) -> None:
        """Take in the words' counts (V,)."""
        raise NotImplementedError


class PartlyRead(Objective):
    """An objective whose training multiplies a token with a part of its matrices."""

    def unread_weights(self) -> float:
        """How many weights of its matrices a token of training is not multiplied with, on average."""
        raise NotImplementedError


class VectorLearning(Objective):
    """An objective whose outcome is a vector a word."""

    def vectors(self) -> Tensor:
        """The words' vectors (V, D), without gradient."""
        raise NotImplementedError


class Writing(Objective):
    """A model that reads one sequence and writes another, token by token."""

    model: EncoderDecoder
    start_id: ClassVar[int | None] = None  # what is read before the first token is written; None: the end mark

    def scores(self, hidden: Tensor) -> Tensor:
        """(B, D) as they come from the model to the logits (B, V) in fp32 of the next token."""
        raise NotImplementedError


class SelfUpdating(nn.Module):
    """What moves its own weights, pair by pair, in place of an objective that an optimizer makes small."""

    def update(self, batch: Any, step: int, lr: float, total: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Learn from a batch; `total` adds a tensor up over all processes. Returns the metrics."""
        raise NotImplementedError


def embedding_of(model: Model) -> nn.Embedding:
    """The table of the model's words' vectors, for a softmax to share. UsageError where it has none."""
    if (embedding := model.input_embedding) is None:
        raise UsageError(
            f"{type(model).__name__} has no word embedding that the softmax could share; write objective.tie=false"
        )
    return embedding


def tie_softmax(head: nn.Linear, model: Model) -> None:
    """Give the softmax layer `head` the weights of the model's input embedding (Press and Wolf 2017; Inan et al. 2017).

    UsageError where the model has no embedding, or one of another shape.
    """
    embedding = embedding_of(model)
    if embedding.weight.shape != head.weight.shape:
        raise UsageError(
            f"an embedding of {embedding.embedding_dim} dimensions can't be the softmax of a model with "
            f"{model.d_model}: write objective.tie=false, or make the two equal"
        )
    head.weight = embedding.weight
