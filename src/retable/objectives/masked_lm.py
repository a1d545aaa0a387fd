"""Masked language modelling and next-sentence prediction (Devlin et al. 2019, section 3.1, appendix A.2).

As in the authors' code, the head is a layer of the model's width with GELU and LayerNorm, then a softmax that shares
the input embedding's weights. The head is computed only at the places whose tokens are to be predicted.

Shapes: B batch, T time, P predicted places, D d_model, E width of the embedding, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.data.masking import MaskedBatch
from retable.models.base import BothDirections, Encoder, EncoderDecoder, LeftToRight, MarkedEncoder, Model
from retable.nn import fused
from retable.nn.cross_entropy import linear_cross_entropy, logits_of, row_chunks
from retable.objectives.base import Objective, embedding_of


class MaskedLM(Objective):
    """An encoder with a softmax over the vocabulary and cross-entropy loss at `batch.places`.

    With `next_sentence`, a classifier on the encoder's summary of the pair is added, and the classifier's cross-entropy
    is added to the loss. With `tie`, the softmax and the input embedding share their weights.
    """

    model: Encoder

    def __init__(self, model: Encoder, vocab_size: PositiveInt, next_sentence: bool, tie: bool = True):
        super().__init__()
        require_encoder(model, "masked_lm")
        if next_sentence and not isinstance(model, MarkedEncoder):
            raise UsageError(
                f"{type(model).__name__} computes no summary of a pair, which next-sentence prediction needs; write "
                "objective.next_sentence=false, or take recipe=bert/bert"
            )
        self.model = model
        self.head = MaskedLMHead(model, vocab_size, tie)
        self.next_sentence = nn.Linear(model.d_model, 2) if next_sentence else None
        if self.next_sentence is None:
            model.drop_pooler()
        else:
            self.next_sentence.apply(model.initialise)

    def loss(self, batch: MaskedBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss of a batch and the batch's metrics; the metric `loss` is the mean nats per masked token."""
        hidden = encode(self.model, batch.input_ids, batch)
        features = self.head(hidden.flatten(0, 1)[batch.places])
        nats = self.head.nats(features, batch.labels)
        loss = nats * batch.share
        metrics = {"loss": loss.detach()}
        if not self.training:  # accuracy only in evaluation, because it computes the logits a second time
            right = (self.head.best(features) == batch.labels).float()
            metrics["masked_accuracy"] = right.mean() * batch.share
        if self.next_sentence is not None:
            if batch.is_next is None:
                raise UsageError(
                    "the batches do not contain pairs of sentences; write batches.next_sentence=next_sentence (or "
                    "sentence_order), or objective.next_sentence=false"
                )
            assert isinstance(self.model, MarkedEncoder)
            logits = self.next_sentence(self.model.pool(hidden)).float()  # (B, 2)
            of_pairs = F.cross_entropy(logits, batch.is_next)
            loss = loss + of_pairs
            metrics["next_sentence_loss"] = of_pairs.detach()
            metrics["next_sentence_accuracy"] = (logits.argmax(1) == batch.is_next).float().mean()
        return loss, metrics, None


class MaskedLMHead(nn.Module):
    """The output layers after an encoder: a dense layer, LayerNorm, and the softmax over the vocabulary."""

    def __init__(self, model: Model, vocab_size: int, tie: bool):
        super().__init__()
        embedding = embedding_of(model) if tie else None
        width = model.d_model if embedding is None else embedding.embedding_dim
        self.dense = nn.Linear(model.d_model, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.decoder = nn.Linear(width, vocab_size)
        self.apply(model.initialise)
        if embedding is not None:
            self.decoder.weight = embedding.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """Map states (P, D) to the softmax's inputs (P, E)."""
        return self.norm(fused.gelu(self.dense(hidden)))

    def nats(self, features: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean of −log p(label), in nats, for features (P, E) and labels (P,)."""
        return linear_cross_entropy(features, self.decoder.weight, self.decoder.bias, labels)

    def best(self, features: Tensor) -> Tensor:
        """Return the ids (P,) with the highest logits, for features (P, E)."""
        return torch.cat([logits.argmax(1) for _, logits in self._logits(features)])

    def drawn(self, features: Tensor, uniform: Tensor) -> Tensor:
        """Draw ids (P,) from the predicted distributions, given features (P, E) and random numbers (P,) in [0, 1).

        At each place, the result is the first id whose cumulative probability is above the random number.
        """
        ids = []
        for rows, logits in self._logits(features):
            below = logits.softmax(1).cumsum(1)
            ids.append(torch.searchsorted(below, uniform[rows, None] * below[:, -1:], right=True))
        # A random number times the sum of probabilities may be rounded up to the sum, so the ids are clamped.
        return torch.cat(ids)[:, 0].clamp(max=len(self.decoder.weight) - 1)

    @torch.no_grad()
    def _logits(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield consecutive slices of the rows of `features` (P, E), and the logits of each slice, fp32 (rows, V)."""
        table = self.decoder.weight.to(features.dtype)
        for rows in row_chunks(features, len(table)):
            yield rows, logits_of(features[rows], table, self.decoder.bias)


def encode(model: Encoder, input_ids: Tensor, batch: MaskedBatch) -> Tensor:
    """Encode ids (B, T) as states (B, T, D), with the lengths and, for a MarkedEncoder, the segments of `batch`."""
    if isinstance(model, MarkedEncoder):
        return model(input_ids, batch.lengths if batch.padded else None, batch.segments)
    return model(input_ids, batch.lengths)


def require_encoder(model: Model, objective: str) -> None:
    """Raise UsageError, with the reason, unless a model's state at each position depends on the text on both sides."""
    if isinstance(model, Encoder):
        return
    reasons: dict[type[Model], str] = {
        BothDirections: "reads each side separately; take an encoder such as recipe=bert/bert, or train it with "
        "objective=bidirectional_lm",
        LeftToRight: "does not see the text after a masked word; take an encoder such as recipe=bert/bert, or train "
        "it with objective=causal_lm",
        EncoderDecoder: "has a decoder, which would not be trained; take an encoder such as recipe=bert/bert, or "
        "train it with objective=text_to_text",
    }
    none = "has no state for every position; take an encoder such as recipe=bert/bert"
    reason = next((why for kind, why in reasons.items() if isinstance(model, kind)), none)
    raise UsageError(f"objective={objective} needs states that see both sides, but {type(model).__name__} {reason}")
