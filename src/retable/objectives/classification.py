"""The classification objective: one label for a whole example, a sequence or a pair of them.

B batch, T time, D d_model, L labels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.examples import ExampleBatch
from retable.models.base import Encoder, LeftToRight, MarkedEncoder, Model, PairEncoder, SequenceEncoder
from retable.nn.cross_entropy import linear_log_prob
from retable.nn.dropout import Dropout
from retable.objectives.base import Objective
from retable.objectives.states import require_states, states_of

POOLINGS = ("max", "mean", "token", "last")


class Classification(Objective):
    """A backbone, its summary of the example, and a linear layer over the labels.

    An encoder that reads both ways is summed up by `pooling`; without one BERT, which can `pool`, by its state of [CLS]
    (Devlin et al. 2019, section 3.2), and another by the max. A left-to-right model is summed up by its last position,
    which alone has read everything (Radford et al. 2018, section 3.2), or by a `pooling`; a model without direction,
    such as a bag of words, gives one vector a sequence.

    A pair is one sequence to BERT and to a left-to-right model. The latter may read it in both orders: the two
    summaries are added up (Radford et al. 2018, section 3.3). Any other model reads its sequences apart, or if it can,
    by `read_pair`, with an eye on each other: of the summaries u and v, [u, v, |u − v|, u ⊙ v] is what the label is
    told from (Conneau et al. 2017, section 3.1).

    auxiliary: how many times the loss of a left-to-right model as a language model of the examples is added; 0.5 for
        GPT (Radford et al. 2018, section 3.2). It is the mean over examples of the mean over each one's tokens, as in
        the authors' code; the softmax is the input embedding, as GPT's in pretraining.
    pairs: whether an example is a pair.
    d_hidden: the width of a layer with tanh before the linear one; None for none.
    pooling: the max or the mean of the states over time (Conneau et al. 2017); of an encoder that reads both ways also
        the token's that stands before the sentence, or the last of each direction, of an LSTM. None: see above.
    """

    def __init__(
        self,
        model: Model,
        n_labels: int,
        dropout: float,
        auxiliary: float = 0.0,
        pairs: bool = False,
        d_hidden: int | None = None,
        pooling: str | None = None,
    ):
        super().__init__()
        require_summary(type(model), pairs)
        if pooling is None and isinstance(model, Encoder) and not isinstance(model, MarkedEncoder):
            pooling = "max"
        _require_pooling(model, pooling)
        if auxiliary:
            _require_softmax(model, auxiliary)
        self.model, self.auxiliary, self.pairs, self.pooling = model, auxiliary, pairs, pooling
        if pooling is not None:
            model.leave_pooler()
        self.dropout = Dropout(dropout)
        d_summary = 4 * model.d_model if pairs and model.layout == "apart" else model.d_model
        if d_hidden is None:
            self.head: nn.Module = nn.Linear(d_summary, n_labels)
            self.head.apply(model.initialise)
        else:
            last = nn.Linear(d_hidden, n_labels)
            last.apply(model.initialise)
            self.head = nn.Sequential(nn.Linear(d_summary, d_hidden), nn.Tanh(), Dropout(dropout), last)

    def forward(self, batch: ExampleBatch) -> Tensor:
        """The (B, L) logits."""
        if isinstance(self.model, MarkedEncoder) and self.pooling is None:
            summary = self.model.summary(batch.input_ids, batch.lengths, batch.segments)
            return self.head(self.dropout(summary))
        return self._label(batch, *self._read(batch))

    def predict(self, batch: ExampleBatch) -> Tensor:
        """The most probable label of each example, (B,)."""
        return self(batch).argmax(dim=1)

    def loss(self, batch: ExampleBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The error of a batch, with the auxiliary loss, and its metrics."""
        hidden, other = self._read(batch)
        loss = self.error(self._label(batch, hidden, other), batch.labels) * batch.weight
        metrics = {"loss": loss.detach()}
        if self.auxiliary:
            nats = self._next_token(hidden, batch.input_ids, batch.lengths) * batch.weight
            if other is not None:
                nats = (nats + self._next_token(other, batch.other_ids, batch.other_lengths) * batch.weight) / 2
            metrics["auxiliary_loss"] = nats.detach()
            loss = loss + self.auxiliary * nats
        return loss, metrics, None

    def error(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of the labels (B,) in nats, of the outputs (B, L)."""
        return F.cross_entropy(outputs.float(), labels)

    def _read(self, batch: ExampleBatch) -> tuple[Tensor, Tensor | None]:
        """The hidden states (B, T, D), of a model without direction (B, D), and those of a second sequence."""
        one = batch.input_ids, batch.lengths
        if batch.other_ids is None or batch.other_lengths is None:
            return states_of(self.model, *one, batch.segments), None
        other = batch.other_ids, batch.other_lengths
        if isinstance(self.model, PairEncoder):
            return self.model.read_pair(*one, *other)
        return states_of(self.model, *one, batch.segments), states_of(self.model, *other)

    def _label(self, batch: ExampleBatch, hidden: Tensor, other: Tensor | None) -> Tensor:
        """The outputs (B, L)."""
        summary = self._summary(hidden, batch.lengths)
        if other is not None:
            u, v = summary, self._summary(other, batch.other_lengths)
            summary = torch.cat([u, v, (u - v).abs(), u * v], dim=1) if self.model.layout == "apart" else u + v
        return self.head(self.dropout(summary))

    def _summary(self, hidden: Tensor, lengths: Any) -> Tensor:
        """Hidden states to (B, D)."""
        if self.pooling is not None:
            return pool(hidden, lengths, self.pooling)
        if isinstance(self.model, MarkedEncoder):
            return self.model.pool(hidden)
        if isinstance(self.model, LeftToRight):
            return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
        return hidden

    def _next_token(self, hidden: Tensor, input_ids: Any, lengths: Any) -> Tensor:
        """The mean over examples of the mean over a sequence's tokens, but the first, of −log p(token)."""
        n_predicted = lengths - 1
        predicts = torch.arange(hidden.shape[1] - 1, device=hidden.device) < n_predicted[:, None]  # (B, T − 1)
        labels = input_ids[:, 1:][predicts]
        softmax = self.model.input_embedding
        assert softmax is not None
        log_probs = linear_log_prob(hidden[:, :-1][predicts], softmax.weight, None, labels)
        shares = 1 / (len(hidden) * n_predicted).repeat_interleave(n_predicted)
        return -(log_probs * shares).sum()


def pool(hidden: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """(B, T, D) states, padded behind each row's length, to (B, D) by a pooling as `Classification` has it."""
    padding = torch.arange(hidden.shape[1], device=hidden.device) >= lengths[:, None]
    match pooling:
        case "max":
            return hidden.masked_fill(padding[:, :, None], float("-inf")).amax(dim=1)
        case "mean":
            return hidden.masked_fill(padding[:, :, None], 0.0).sum(dim=1) / lengths[:, None]
        case "token":
            return hidden[:, 0]
        case _:
            last = hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
            return torch.cat([last.chunk(2, dim=1)[0], hidden[:, 0].chunk(2, dim=1)[1]], dim=1)


def require_summary(model: type[Model], pairs: bool) -> None:
    """Raise UsageError for a kind of model that gives no summary of an example."""
    require_states(model, "tell a label by")
    if not issubclass(model, Encoder | LeftToRight | SequenceEncoder):
        raise UsageError(f"{model.__name__} is no encoder of sentences; take recipe=encoders/bilstm or bert/bert")
    if issubclass(model, PairEncoder) and not pairs:
        raise UsageError(f"{model.__name__} reads pairs of sentences; take recipe=encoders/bilstm")


def _require_pooling(model: Model, pooling: str | None) -> None:
    """Raise UsageError for a pooling that there isn't, or that the model's states can't have."""
    if pooling is None:
        return
    if pooling not in POOLINGS:
        raise UsageError(f"pooling={pooling} is none of {', '.join(POOLINGS)}")
    name = type(model).__name__
    if isinstance(model, LeftToRight):
        if pooling not in ("max", "mean"):
            raise UsageError(
                f"{name} reads one way, and pooling={pooling} is for both; write pooling=max or mean, or leave it out "
                "for the last position"
            )
    elif not isinstance(model, Encoder):
        raise UsageError(f"{name} has a summary of its own; leave pooling={pooling} out")
    elif pooling == "last" and not model.two_ends:
        raise UsageError(f"{name} has no last states of two directions; write pooling=max, mean or token")


def _require_softmax(model: Model, auxiliary: float) -> None:
    """Raise UsageError for a model that can't be a language model by its own embedding."""
    name, embedding = type(model).__name__, model.input_embedding
    if not isinstance(model, LeftToRight):
        raise UsageError(
            f"{name} has seen the tokens that auxiliary={auxiliary} asks it to predict; write auxiliary=0, or take a "
            "left-to-right model such as recipe=transformer/gpt"
        )
    if embedding is None or embedding.embedding_dim != model.d_model:
        raise UsageError(
            f"{name} has no word embedding as wide as its states, {model.d_model}, to be the softmax of "
            f"auxiliary={auxiliary}; write auxiliary=0"
        )
