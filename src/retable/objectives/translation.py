"""The sequence-to-sequence objective: predict each target token from the source and the earlier target tokens.

Shapes: B batch, S time of the source, U time of the target, N real target tokens, D d_model, V vocabulary.
"""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.pairs import PairBatch
from retable.models.base import EncoderDecoder, Model
from retable.nn.cross_entropy import linear_cross_entropy, linear_log_prob
from retable.objectives.base import Writing, tie_softmax


class Translation(Writing):
    """An encoder-decoder with a softmax over the vocabulary; the loss is the cross-entropy of the target tokens.

    Label smoothing distributes a share ε (`label_smoothing`) of the label's probability evenly over all V tokens of the
    vocabulary (Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4). With `tie`, the softmax and the
    embedding share their weights.

    `teacher_forcing` is the probability that the decoder's input at a step of training is the reference (Williams and
    Zipser 1989); otherwise the input is the most probable token of the step before. All rows of a process's batch share
    the decision; each process draws its own decisions. Below 1, the loss of an evaluation is free-running: only the
    first input is a reference.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        vocab_size: int,
        label_smoothing: float,
        tie: bool,
        bias: bool,
        teacher_forcing: float = 1.0,
        start_id: int | None = None,
    ):
        super().__init__()
        require_writer(type(model))
        if not 0 <= label_smoothing < 1:
            raise UsageError(
                f"head.label_smoothing={label_smoothing} is out of range; write 0 or more and below 1, such as 0.1"
            )
        if not 0 <= teacher_forcing <= 1:
            raise UsageError(f"head.teacher_forcing={teacher_forcing} is out of range; write a probability from 0 to 1")
        self.model, self.label_smoothing, self.teacher_forcing = model, label_smoothing, teacher_forcing
        self.start_id = start_id
        self.head = nn.Linear(model.d_model, vocab_size, bias=bias)
        self.head.apply(model.initialise)
        if tie:
            tie_softmax(self.head, model)

    def loss(self, batch: PairBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the smoothed loss of a batch; the metric `loss` is the nats per token without smoothing."""
        hidden, labels = self._predictions(batch)
        nats = linear_cross_entropy(hidden, self.head.weight, self.head.bias, labels)
        loss = nats
        if self.label_smoothing:
            loss = nats + self.label_smoothing * lead(hidden, self.head.weight, self.head.bias, labels)
        return loss * batch.weight, {"loss": nats.detach() * batch.weight}, None

    def log_prob(self, batch: PairBatch) -> Tensor:
        """Compute log p(target | source), in nats, for each row, fp32 (B,).

        With `teacher_forcing` below 1, the result is minus the free-running loss, which is not a log-probability of the
        target, because each token is scored after the model's own output instead of the earlier target tokens.
        """
        hidden, labels = self._predictions(batch)
        log_probs = linear_log_prob(hidden, self.head.weight, self.head.bias, labels)
        rows = torch.arange(len(batch.labels), device=labels.device).repeat_interleave(batch.target_lengths)
        return log_probs.new_zeros(len(batch.labels)).index_add_(0, rows, log_probs)

    def _predictions(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return the hidden states (N, D) that predict the targets, and the targets (N,), without padding."""
        if self.teacher_forcing == 1:
            hidden = self.model(batch.source_ids, batch.source_lengths, batch.target_ids)
        else:
            U = batch.target_ids.shape[1]
            forced = torch.rand(U) < self.teacher_forcing if self.training else torch.zeros(U, dtype=torch.bool)
            hidden = self._partly_free(batch, forced)
        real = torch.arange(hidden.shape[1], device=hidden.device) < batch.target_lengths[:, None]
        return hidden[real], batch.labels[real]

    def _partly_free(self, batch: PairBatch, forced: Tensor) -> Tensor:
        """Return hidden states (B, U, D); where `forced` (U,) is False, the input is the step before's best token.

        Steps between two free steps are decoded in one call, because their inputs are known.
        """
        U = batch.target_ids.shape[1]
        free = [step for step in range(1, U) if not forced[step]]
        state = self.model.encode(batch.source_ids, batch.source_lengths)
        ids, parts = batch.target_ids, list[Tensor]()
        for begin, end in pairwise([0, *free, U]):
            inputs = ids[:, begin:end]
            if parts:
                best = self.scores(parts[-1][:, -1].detach()).argmax(dim=1)
                inputs = torch.cat([best[:, None], inputs[:, 1:]], dim=1)
            hidden, state = self.model.decode(inputs, state)
            parts.append(hidden)
        return torch.cat(parts, dim=1)

    def scores(self, hidden: Tensor) -> Tensor:
        return self.head(hidden).float()


def require_writer(model: type[Model]) -> None:
    """Raise UsageError unless models of this class can translate."""
    if not issubclass(model, EncoderDecoder):
        raise UsageError(
            f"{model.__name__} has one stack and no encoder for the source; take an encoder-decoder such as "
            "recipe=translation/transformer_translation or recipe=translation/rnn_translation"
        )


def lead(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Compute the mean over tokens of the difference between the label's logit and the mean logit, an fp32 scalar.

    hidden (N, D), weight (V, D), bias (V,), labels (N,). A smoothed label y is the distribution q = (1 − ε) [y] + ε/V.
    The cross-entropy of q, −Σ q log p, is −log p_y + ε (z_y − z̄) with logits z, because all logits have the same
    normaliser. The mean logit z̄ is the product of the hidden state and the mean of the weights, so no second pass over
    N·V logits is needed.
    """
    with torch.autocast(hidden.device.type, enabled=False):
        direction = F.embedding(labels, weight) - weight.mean(dim=0)  # (N, D)
        above = (hidden.float() * direction).sum(dim=1)
        return above.mean() if bias is None else (above + bias[labels] - bias.mean()).mean()
