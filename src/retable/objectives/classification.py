"""The classification objective: predict one label for an example, which is a sequence or a pair of sequences.

Shapes: B batch, T time, D d_model, L labels.
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
    """A model, a summary of its states in one vector per example, and a linear layer over the labels.

    The summary depends on the model. BERT, which has a method `pool`, uses the state of [CLS] (Devlin et al. 2019,
    section 3.2). Other encoders use the maximum of the states over time. A left-to-right model uses the state of the
    last position, the only position that has read the whole sequence (Radford et al. 2018, section 3.2). A model such
    as a bag of words already computes one vector per sequence. The setting `pooling` selects a different summary.

    BERT and left-to-right models read a pair as one sequence. Left-to-right models can read a pair in both orders; the
    two summaries are then added (Radford et al. 2018, section 3.3). Other models read the two sequences separately; a
    model with a method `read_pair` reads each sequence with attention to the other sequence. For models that read two
    separate sequences, the label is predicted from [u, v, |u − v|, u ⊙ v], where u and v are the summaries of the two
    sequences (Conneau et al. 2017, section 3.1).

    Args:
        auxiliary: for left-to-right models, the weight of the language-model loss on the examples; GPT uses 0.5
            (Radford et al. 2018, section 3.2). As in the authors' code, the language-model loss is averaged over an
            example's tokens, then over examples, and the softmax uses the weights of the input embedding.
        pairs: whether an example is a pair.
        d_hidden: width of a tanh layer before the linear layer; with None, there is no tanh layer.
        pooling: "max" or "mean" of the states over time (Conneau et al. 2017); for encoders also "token", the state of
            the mark before the sentence, or "last", the last state of each direction of an LSTM. With None, the model's
            default summary is used, as described above.
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
            model.drop_pooler()
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
        """Return the logits (B, L)."""
        if isinstance(self.model, MarkedEncoder) and self.pooling is None:
            summary = self.model.summary(batch.input_ids, batch.lengths, batch.segments)
            return self.head(self.dropout(summary))
        return self._label(batch, *self._read(batch))

    def predict(self, batch: ExampleBatch) -> Tensor:
        """Return the most probable label of each example, (B,)."""
        return self(batch).argmax(dim=1)

    def loss(self, batch: ExampleBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss of a batch, including the auxiliary loss, and the batch's metrics."""
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
        """Compute the mean cross-entropy of the labels (B,), in nats, from the logits (B, L)."""
        return F.cross_entropy(outputs.float(), labels)

    def _read(self, batch: ExampleBatch) -> tuple[Tensor, Tensor | None]:
        """Return the hidden states of the first sequence and, if examples are pairs, of the second sequence.

        The shape is (B, T, D), or (B, D) for a model with one vector per sequence.
        """
        one = batch.input_ids, batch.lengths
        if batch.other_ids is None or batch.other_lengths is None:
            return states_of(self.model, *one, batch.segments), None
        other = batch.other_ids, batch.other_lengths
        if isinstance(self.model, PairEncoder):
            return self.model.read_pair(*one, *other)
        return states_of(self.model, *one, batch.segments), states_of(self.model, *other)

    def _label(self, batch: ExampleBatch, hidden: Tensor, other: Tensor | None) -> Tensor:
        """Compute the logits (B, L) from the hidden states of one or two sequences."""
        summary = self._summary(hidden, batch.lengths)
        if other is not None:
            u, v = summary, self._summary(other, batch.other_lengths)
            summary = torch.cat([u, v, (u - v).abs(), u * v], dim=1) if self.model.layout == "apart" else u + v
        return self.head(self.dropout(summary))

    def _summary(self, hidden: Tensor, lengths: Any) -> Tensor:
        """Summarise the hidden states of each sequence in one vector, (B, D)."""
        if self.pooling is not None:
            return pool(hidden, lengths, self.pooling)
        if isinstance(self.model, MarkedEncoder):
            return self.model.pool(hidden)
        if isinstance(self.model, LeftToRight):
            return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
        return hidden

    def _next_token(self, hidden: Tensor, input_ids: Any, lengths: Any) -> Tensor:
        """Average −log p(token), in nats, over an example's tokens except the first token, and then over examples."""
        n_predicted = lengths - 1
        predicts = torch.arange(hidden.shape[1] - 1, device=hidden.device) < n_predicted[:, None]  # (B, T − 1)
        labels = input_ids[:, 1:][predicts]
        softmax = self.model.input_embedding
        assert softmax is not None
        log_probs = linear_log_prob(hidden[:, :-1][predicts], softmax.weight, None, labels)
        shares = 1 / (len(hidden) * n_predicted).repeat_interleave(n_predicted)
        return -(log_probs * shares).sum()


def pool(hidden: Tensor, lengths: Tensor, pooling: str) -> Tensor:
    """Pool the states (B, T, D) of each row, except padding, to one vector, (B, D); see `Classification`."""
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
    """Raise UsageError unless the states of this class of model can be summarised in one vector per example."""
    require_states(model, "predict a label from")
    if not issubclass(model, Encoder | LeftToRight | SequenceEncoder):
        raise UsageError(f"{model.__name__} is not a sentence encoder; take recipe=encoders/bilstm or bert/bert")
    if issubclass(model, PairEncoder) and not pairs:
        raise UsageError(f"{model.__name__} reads only sentence pairs; take recipe=encoders/bilstm")


def _require_pooling(model: Model, pooling: str | None) -> None:
    """Raise UsageError unless `pooling` is the name of a pooling that fits the model's states."""
    if pooling is None:
        return
    if pooling not in POOLINGS:
        raise UsageError(f"unknown pooling={pooling}; write one of {', '.join(POOLINGS)}")
    name = type(model).__name__
    if isinstance(model, LeftToRight):
        if pooling not in ("max", "mean"):
            raise UsageError(
                f"{name} reads in one direction, but pooling={pooling} needs both directions; write pooling=max or "
                "mean, or remove pooling to use the last position"
            )
    elif not isinstance(model, Encoder):
        raise UsageError(f"{name} computes one vector per sequence, so pooling={pooling} has no effect; remove it")
    elif pooling == "last" and not model.two_ends:
        raise UsageError(f"{name} does not have a last state for each direction; write pooling=max, mean or token")


def _require_softmax(model: Model, auxiliary: float) -> None:
    """Raise UsageError unless a model can predict the next token with its input embedding as the softmax's weights."""
    name, embedding = type(model).__name__, model.input_embedding
    if not isinstance(model, LeftToRight):
        raise UsageError(
            f"{name} sees the tokens that it would predict with auxiliary={auxiliary}; write auxiliary=0, or take a "
            "left-to-right model such as recipe=transformer/gpt"
        )
    if embedding is None or embedding.embedding_dim != model.d_model:
        raise UsageError(
            f"{name} needs a word embedding of its states' width {model.d_model}, because auxiliary={auxiliary} uses "
            "this embedding as softmax; write auxiliary=0"
        )
