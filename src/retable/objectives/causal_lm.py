"""The left-to-right language-model objective: predict each token from those before it.

B batch, T time, D d_model, V vocabulary.
"""

from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.streams import TokenBatch
from retable.errors import UsageError


class CausalLM(nn.Module):
    """A left-to-right backbone, a softmax over the vocabulary on top, and the cross-entropy.

    `tie` shares the softmax's weights with the input embedding (Press and Wolf 2017; Inan et al. 2017).
    `reduction="time_sum"` sums the loss over time and averages it over the batch, the convention of Zaremba et al.
    (2014)'s code, under which the paper's learning rate and clipping threshold hold; "mean" averages over both.
    """

    def __init__(self, model: Any, vocab_size: int, tie: bool, bias: bool, reduction: Literal["mean", "time_sum"]):
        super().__init__()
        if model.direction != "left-to-right":
            raise UsageError(
                f"{type(model).__name__} reads the sentence from both sides, so it has seen the word that "
                "objective=causal_lm asks it to predict; take a left-to-right model such as model=lstm or model=gpt"
            )
        self.model = model
        self.head = nn.Linear(model.d_model, vocab_size, bias=bias)
        self.head.apply(model.initialise)
        if tie:
            self.head.weight = model.embedding.weight
        self.reduction = reduction

    def loss(self, batch: TokenBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """The loss of a batch, its metrics (nats a token) and the state to go on with."""
        hidden, state = self.model(batch.input_ids, None if batch.fresh else state)
        nats = F.cross_entropy(self.head(hidden).flatten(0, 1).float(), batch.labels.flatten())
        scale = batch.labels.shape[1] if self.reduction == "time_sum" else 1
        return nats * scale, {"loss": nats.detach()}, state

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) inputs and successors to the successors' log-probabilities, (B, T) in fp32, and the state after."""
        hidden, state = self.model(input_ids, state)
        log_probs = -F.cross_entropy(self.head(hidden).flatten(0, 1).float(), labels.flatten(), reduction="none")
        return log_probs.view_as(labels), state
