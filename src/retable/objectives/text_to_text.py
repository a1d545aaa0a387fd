"""The text-to-text objective: an encoder reads the inputs, and a decoder predicts the targets token by token.

Shapes: B batch, T inputs, U targets, N predicted tokens, D d_model, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.data.corruption import START
from retable.data.pairs import PairBatch
from retable.models.base import Encoder, EncoderDecoder, Model
from retable.nn.cross_entropy import IGNORED, linear_cross_entropy, linear_log_prob, logits_of, row_chunks
from retable.objectives.base import Writing, tie_softmax


class TextToText(Writing):
    """An encoder-decoder with a softmax; the loss is the cross-entropy of the targets under teacher forcing.

    With `tie`, the softmax and the embedding share their weights, and hidden states are scaled by d_model^−0.5, as in
    T5 1.0.
    """

    start_id: int = START

    def __init__(self, model: EncoderDecoder, vocab_size: PositiveInt, tie: bool):
        super().__init__()
        self.check(model)
        self.model = model
        self.head = nn.Linear(model.d_model, vocab_size, bias=False)
        self.head.apply(model.initialise)
        if tie:
            tie_softmax(self.head, model)
        self.scale = model.d_model**-0.5 if tie else 1.0

    @staticmethod
    def check(model: Model) -> None:
        """Raise UsageError unless a model has an encoder and a decoder."""
        if not isinstance(model, EncoderDecoder):
            other = "masked_lm" if isinstance(model, Encoder) else "prefix_lm or objective=causal_lm"
            raise UsageError(
                f"{type(model).__name__} has one stack, but objective=text_to_text needs an encoder and a decoder; "
                f"take recipe=t5/t5, or write objective={other}"
            )

    def loss(self, batch: PairBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], Any]:
        """Compute the loss and the metrics of a batch: nats per target token and, in evaluation, the accuracy."""
        hidden, labels = self.predictions(batch)
        nats = linear_cross_entropy(hidden, self.head.weight, None, labels)
        metrics = {"loss": nats.detach() * batch.weight}
        if not self.training:
            metrics["accuracy"] = self._correct(hidden.detach(), labels).mean() * batch.weight
        return nats * batch.weight, metrics, None

    def log_prob(self, batch: PairBatch) -> Tensor:
        """Compute log p(targets | inputs), in nats, for each row, fp32 (B,)."""
        hidden, labels = self.predictions(batch)
        log_probs = linear_log_prob(hidden, self.head.weight, None, labels)
        rows = torch.arange(len(batch.labels), device=labels.device).repeat_interleave(batch.target_lengths)
        return log_probs.new_zeros(len(batch.labels)).index_add_(0, rows, log_probs)

    def predictions(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return the scaled hidden states (N, D) that predict the targets, and the targets (N,), without padding.

        Within torch.compile, padding is not removed, because sizes must not depend on values; its label is IGNORED.
        """
        places = torch.arange(batch.labels.shape[1], device=batch.labels.device)
        real = places < batch.target_lengths[:, None]
        if is_compiling():
            return self.decoded(batch).flatten(0, 1) * self.scale, batch.labels.where(real, IGNORED).flatten()
        return self.decoded(batch)[real] * self.scale, batch.labels[real]

    def decoded(self, batch: PairBatch) -> Tensor:
        """Return the hidden states (B, U, D) that predict each target from the inputs and the targets before it."""
        return self.model(batch.source_ids, batch.source_lengths, batch.target_ids)

    def most_likely(self, source_ids: Tensor, source_lengths: Tensor, length: int) -> Tensor:
        """Write `length` tokens for each input, (B, length), choosing the most probable token at each step.

        `source_ids` (B, T) are the inputs, padded after `source_lengths` (B,).
        """
        state, ids = self.model.encode(source_ids, source_lengths), torch.full_like(source_lengths, self.start_id)
        written = []
        for _ in range(length):
            hidden, state = self.model.decode(ids[:, None], state)
            ids = self.scores(hidden[:, -1]).argmax(dim=1)
            written.append(ids)
        return torch.stack(written, dim=1)

    def scores(self, hidden: Tensor) -> Tensor:
        return logits_of(hidden * self.scale, self.head.weight.to(hidden.dtype), None)

    def _correct(self, hidden: Tensor, labels: Tensor) -> Tensor:
        table = self.head.weight.detach().to(hidden.dtype)
        chunks = row_chunks(hidden, len(table))
        return torch.cat(
            [logits_of(hidden[rows], table, None).argmax(dim=1) == labels[rows] for rows in chunks]
        ).float()
