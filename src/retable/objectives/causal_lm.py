"""The left-to-right language-model objective: predict each token from the tokens before it.

Shapes: B batch, T time, N = B·T, D d_model, V vocabulary.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt
from retable.data.streams import TokenBatch
from retable.models.base import LeftToRight
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob, logits_of
from retable.objectives.base import LanguageModelling, tie_softmax


class CausalLM(LanguageModelling):
    """A left-to-right model with a softmax over the vocabulary and the cross-entropy loss.

    Args:
        tie: share the softmax's weights with the input embedding (Press and Wolf 2017; Inan et al. 2017).
        reduction: "mean" averages over time and batch. "time_sum" sums over time and averages over the batch, as in the
            code of Zaremba et al. (2014), whose learning rate and clipping threshold assume this sum.
        projection: if not 0, put a matrix P before the softmax and add projection · ‖P‖₂ to the loss (Press and Wolf
            2017, section 4).

    The model's `penalty` is added to the loss. A subclass with another output layer overrides `nats` for training, and
    `log_prob_of` and `log_softmax` for prediction.
    """

    projection: Any  # nn.Linear or nn.Identity

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        projection: NonNegative = 0.0,
    ):
        super().__init__()
        if not isinstance(model, LeftToRight):
            raise UsageError(
                f"{type(model).__name__} reads the sentence from both sides, so it sees the word that "
                "objective=causal_lm predicts; take a left-to-right model such as "
                "recipe=recurrent/lstm or transformer/gpt"
            )
        self.model = model
        self.head = nn.Linear(model.d_model, vocab_size, bias=bias)
        self.head.apply(model.initialise)
        if tie:
            tie_softmax(self.head, model)
        self.reduction, self.projection_penalty = reduction, projection
        self.projection = nn.Linear(model.d_model, model.d_model, bias=False) if projection else nn.Identity()
        self.projection.apply(model.initialise)

    def loss(self, batch: TokenBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """Compute the loss of a batch, its metrics (`loss`: nats per token) and the next state."""
        hidden, state = self.model(batch.input_ids, batch.state(state))
        nats = self.nats(self.projection(hidden).flatten(0, 1), batch.labels.flatten())
        return self.penalised(nats, batch.labels.shape[1]), {"loss": nats.detach()}, state

    def penalised(self, nats: Tensor, length: int) -> Tensor:
        """Compute the training loss from `nats`, the mean nats per token: apply the reduction, and add the penalties.

        length: number of time steps of the batch, by which "time_sum" multiplies the mean.
        """
        loss = nats * length if self.reduction == "time_sum" else nats
        if self.projection_penalty:
            loss = loss + self.projection_penalty * self.projection.weight.norm()
        if (penalty := self.model.penalty) is not None:
            loss, self.model.penalty = loss + penalty, None  # penalty is reset: tensors with a graph cannot be copied
        return loss

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        hidden, state = self.model(input_ids, state)
        log_probs = self.log_prob_of(self.projection(hidden).flatten(0, 1), labels.flatten())
        return log_probs.view_as(labels), state

    def next_log_prob(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.model(input_ids, state)
        return self.log_softmax(self.projection(hidden[:, -1])), state

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean training loss per token for hidden states (N, D) and labels (N,)."""
        return linear_cross_entropy(hidden, self.head.weight, self.head.bias, labels)

    def log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Compute the labels' log-probabilities, fp32 (N,) in nats, for hidden states (N, D)."""
        return linear_log_prob(hidden, self.head.weight, self.head.bias, labels)

    def log_softmax(self, hidden: Tensor) -> Tensor:
        """Compute the log-probabilities of all tokens, fp32 (N, V) in nats, for hidden states (N, D)."""
        return torch.log_softmax(logits_of(hidden, self.head.weight.to(hidden.dtype), self.head.bias), dim=1)
