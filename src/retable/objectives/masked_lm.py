"""Masked language modelling and next-sentence prediction (Devlin et al. 2019, section 3.1, appendix A.2).

The head is that of the authors' code: a layer of the model's width with GELU and LayerNorm, then the softmax, whose
weights are the input embedding's. Only at the places that are predicted is anything computed on top of the encoder.

B batch, T time, P places that are predicted, D d_model, E width of the embedding, V vocabulary.
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
    """An encoder, the softmax over the vocabulary at the places that `batch.places` names, and their cross-entropy.

    `next_sentence` adds a classifier on the encoder's summary of the pair, and its cross-entropy to the loss.
    `tie` shares the softmax's weights with the input embedding.
    """

    model: Encoder

    def __init__(self, model: Encoder, vocab_size: PositiveInt, next_sentence: bool, tie: bool = True):
        super().__init__()
        require_encoder(model, "masked_lm")
        if next_sentence and not isinstance(model, MarkedEncoder):
            raise UsageError(
                f"{type(model).__name__} has no summary of a pair to tell from whether it belongs together; write "
                "objective.next_sentence=false, or take recipe=bert/bert"
            )
        self.model = model
        self.head = MaskedLMHead(model, vocab_size, tie)
        self.next_sentence = nn.Linear(model.d_model, 2) if next_sentence else None
        if self.next_sentence is None:
            model.leave_pooler()
        else:
            self.next_sentence.apply(model.initialise)

    def loss(self, batch: MaskedBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The loss of a batch and its metrics: `loss` is the mean nats of a masked token."""
        hidden = encode(self.model, batch.input_ids, batch)
        features = self.head(hidden.flatten(0, 1)[batch.places])
        nats = self.head.nats(features, batch.labels)
        loss = nats * batch.share
        metrics = {"loss": loss.detach()}
        if not self.training:  # it takes the logits once more
            right = (self.head.best(features) == batch.labels).float()
            metrics["masked_accuracy"] = right.mean() * batch.share
        if self.next_sentence is not None:
            if batch.is_next is None:
                raise UsageError(
                    "the batches have no pairs of sentences; write batches.next_sentence=next_sentence (or "
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
    """What stands between an encoder and its softmax, and the softmax."""

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
        """(P, D) to the features (P, E) that the softmax reads."""
        return self.norm(fused.gelu(self.dense(hidden)))

    def nats(self, features: Tensor, labels: Tensor) -> Tensor:
        """(P, E) and (P,) to the mean of −log p(label)."""
        return linear_cross_entropy(features, self.decoder.weight, self.decoder.bias, labels)

    def best(self, features: Tensor) -> Tensor:
        """(P, E) to the ids (P,) with the highest logit."""
        return torch.cat([logits.argmax(1) for _, logits in self._logits(features)])

    def drawn(self, features: Tensor, uniform: Tensor) -> Tensor:
        """(P, E) to ids (P,) drawn from p: the first whose cumulative probability is above `uniform` (P,) in [0, 1)."""
        found = []
        for rows, logits in self._logits(features):
            below = logits.softmax(1).cumsum(1)
            found.append(torch.searchsorted(below, uniform[rows, None] * below[:, -1:], right=True))
        return torch.cat(found)[:, 0].clamp(max=len(self.decoder.weight) - 1)  # a product may round up to the last

    @torch.no_grad()
    def _logits(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Part after part of the rows of (P, E), and their logits (_, V) in fp32."""
        table = self.decoder.weight.to(features.dtype)
        for rows in row_chunks(features, len(table)):
            yield rows, logits_of(features[rows], table, self.decoder.bias)


def encode(model: Encoder, input_ids: Tensor, batch: MaskedBatch) -> Tensor:
    """(B, T) ids with the lengths, and for a model that has segments the segments, of `batch` to (B, T, D)."""
    segments = (batch.segments,) if isinstance(model, MarkedEncoder) else ()
    return model(input_ids, batch.lengths, *segments)


def require_encoder(model: Model, objective: str) -> None:
    """Raise UsageError, which says why, for a model that is no encoder with a state for every position."""
    if isinstance(model, Encoder):
        return
    reasons: dict[type[Model], str] = {
        BothDirections: "reads each side for itself, no state both; take an encoder such as recipe=bert/bert, or train "
        "it with objective=bidirectional_lm",
        LeftToRight: "sees nothing of what comes after a masked word; take an encoder such as recipe=bert/bert, or "
        "train it with objective=causal_lm",
        EncoderDecoder: "has a decoder, which would be left untrained; take an encoder such as recipe=bert/bert, or "
        "train it with objective=text_to_text",
    }
    none = "has no state for every position; take an encoder such as recipe=bert/bert"
    reason = next((why for kind, why in reasons.items() if isinstance(model, kind)), none)
    raise UsageError(f"objective={objective} asks for words by both their sides, and {type(model).__name__} {reason}")
