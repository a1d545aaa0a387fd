"""The left-to-right language-model objective: predict each token from those before it.

B batch, T time, N = B·T, D d_model, V vocabulary.
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
    """A left-to-right backbone, a softmax over the vocabulary on top, and the cross-entropy.

    `tie` shares the softmax's weights with the input embedding (Press and Wolf 2017; Inan et al. 2017).
    `reduction="time_sum"` sums the loss over time and averages it over the batch, the convention of Zaremba et al.
    (2014)'s code, under which the paper's learning rate and clipping threshold hold; "mean" averages over both.
    `projection`, where it is not 0, puts a matrix P before the softmax and projection · ‖P‖₂ in the loss (Press and
    Wolf 2017, section 4). What a backbone adds to the loss of its last batch it leaves in `penalty`.

    A subclass with another output layer says in `nats` how it is trained, in `log_prob_of` and `log_softmax` what it
    predicts.
    """

    projection: Any  # nn.Linear, or nothing

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
                f"{type(model).__name__} reads the sentence from both sides, so it has seen the word that "
                "objective=causal_lm asks it to predict; take a left-to-right model such as "
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
        """The loss of a batch, its metrics (nats a token) and the state to go on with."""
        hidden, state = self.model(batch.input_ids, None if batch.fresh else state)
        nats = self.nats(self.projection(hidden).flatten(0, 1), batch.labels.flatten())
        return self.penalised(nats, batch.labels.shape[1]), {"loss": nats.detach()}, state

    def penalised(self, nats: Tensor, length: int) -> Tensor:
        """What training makes small: a token's mean nats, by the reduction over rows of `length`, and penalties."""
        loss = nats * length if self.reduction == "time_sum" else nats
        if self.projection_penalty:
            loss = loss + self.projection_penalty * self.projection.weight.norm()
        if (penalty := self.model.penalty) is not None:
            loss, self.model.penalty = loss + penalty, None  # a tensor with a graph can't be copied along
        return loss

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        hidden, state = self.model(input_ids, state)
        log_probs = self.log_prob_of(self.projection(hidden).flatten(0, 1), labels.flatten())
        return log_probs.view_as(labels), state

    def next_log_prob(self, input_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, state = self.model(input_ids, state)
        return self.log_softmax(self.projection(hidden[:, -1])), state

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """(N, D) and (N,) to the mean loss of a token, which training makes small."""
        return linear_cross_entropy(hidden, self.head.weight, self.head.bias, labels)

    def log_prob_of(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """(N, D) and (N,) to the labels' log-probabilities (N,) in fp32."""
        return linear_log_prob(hidden, self.head.weight, self.head.bias, labels)

    def log_softmax(self, hidden: Tensor) -> Tensor:
        """(N, D) to the log-probabilities of all tokens (N, V) in fp32."""
        return torch.log_softmax(logits_of(hidden, self.head.weight.to(hidden.dtype), self.head.bias), dim=1)
