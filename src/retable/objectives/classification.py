"""The classification objective: one label for a whole sequence.

B batch, T time, D d_model, L labels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.examples import ExampleBatch
from retable.errors import UsageError
from retable.nn.cross_entropy import linear_log_prob


class Classification(nn.Module):
    """A backbone, its summary of the sequence, and a linear layer over the labels.

    BERT, which can `pool`, is summed up by its state of [CLS] (Devlin et al. 2019, section 3.2). Another encoder that
    reads both ways is summed up by the maximum over time (Conneau et al. 2017); a left-to-right model by its last
    position, which alone has read everything (Radford et al. 2018, section 3.2); a model without direction, such as a
    bag of words, gives one vector a sequence.

    auxiliary: how many times the loss of a left-to-right model as a language model of the examples is added; 0.5 for
        GPT (Radford et al. 2018, section 3.2). It is the mean over examples of the mean over each one's tokens, as in
        the authors' code; the softmax is the input embedding, as GPT's in pretraining.
    """

    def __init__(self, model: Any, n_labels: int, dropout: float, auxiliary: float = 0.0):
        super().__init__()
        _require_states(model)
        if auxiliary:
            _require_softmax(model, auxiliary)
        self.model, self.auxiliary = model, auxiliary
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(model.d_model, n_labels)
        self.head.apply(model.initialise)

    def forward(self, batch: ExampleBatch) -> Tensor:
        """The (B, L) logits."""
        return self._classify(self._read(batch), batch.lengths)

    def loss(self, batch: ExampleBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean cross-entropy of a batch in nats, with the auxiliary loss, and its metrics."""
        hidden = self._read(batch)
        loss = F.cross_entropy(self._classify(hidden, batch.lengths).float(), batch.labels) * batch.weight
        metrics = {"loss": loss.detach()}
        if self.auxiliary:
            nats = self._next_token(hidden, batch) * batch.weight
            metrics["auxiliary_loss"] = nats.detach()
            loss = loss + self.auxiliary * nats
        return loss, metrics, None

    def _read(self, batch: ExampleBatch) -> Tensor:
        """The hidden states (B, T, D), of a model without direction (B, D)."""
        if self.model.direction == "left-to-right":
            return self.model(batch.input_ids)[0]
        return self.model(batch.input_ids, batch.lengths)

    def _classify(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        if hasattr(self.model, "pool"):
            summary = self.model.pool(hidden)
        elif self.model.direction == "both":
            padding = torch.arange(hidden.shape[1], device=hidden.device) >= lengths[:, None]
            summary = hidden.masked_fill(padding[:, :, None], float("-inf")).amax(dim=1)
        elif self.model.direction == "left-to-right":
            summary = hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
        else:
            summary = hidden
        return self.head(self.dropout(summary))

    def _next_token(self, hidden: Tensor, batch: ExampleBatch) -> Tensor:
        """The mean over examples of the mean over a sequence's tokens, but the first, of −log p(token)."""
        n_predicted = batch.lengths - 1
        predicts = torch.arange(hidden.shape[1] - 1, device=hidden.device) < n_predicted[:, None]  # (B, T − 1)
        labels = batch.input_ids[:, 1:][predicts]
        log_probs = linear_log_prob(hidden[:, :-1][predicts], self.model.embedding.weight, None, labels)
        shares = 1 / (len(hidden) * n_predicted).repeat_interleave(n_predicted)
        return -(log_probs * shares).sum()


def _require_states(model: Any) -> None:
    """Raise UsageError for a model that does not give the states of a sequence."""
    if model.direction not in ("both", "left-to-right", "none"):
        raise UsageError(
            f"{type(model).__name__} writes text, and has no state for a label; take model=t5_encoder, or an encoder "
            "such as model=bert"
        )
    if hasattr(model, "backward_stack"):
        raise UsageError(
            f"{type(model).__name__} gives features to a task's model; take model=bilstm_elmo with init= its cell"
        )


def _require_softmax(model: Any, auxiliary: float) -> None:
    """Raise UsageError for a model that can't be a language model by its own embedding."""
    name, embedding = type(model).__name__, getattr(model, "embedding", None)
    if model.direction != "left-to-right":
        raise UsageError(
            f"{name} has seen the tokens that auxiliary={auxiliary} asks it to predict; write auxiliary=0, or take a "
            "left-to-right model such as model=gpt"
        )
    if not isinstance(embedding, nn.Embedding) or embedding.embedding_dim != model.d_model:
        raise UsageError(
            f"{name} has no word embedding as wide as its states, {model.d_model}, to be the softmax of "
            f"auxiliary={auxiliary}; write auxiliary=0"
        )
