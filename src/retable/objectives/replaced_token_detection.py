"""Replaced-token detection, ELECTRA's objective (Clark, Luong, Le and Manning 2020, section 3).

arXiv 2003.10555. A small masked language model, the generator, fills every masked place with a probable word. The
discriminator predicts for each token of the text whether it is the original token. The generator is trained by maximum
likelihood. The total loss is the generator's loss plus λ times the discriminator's loss (section 3.1). After training,
only the discriminator is kept.

Shapes: B batch, T time, P masked places, D d_model of the discriminator.

System D5 of docs/systems.yaml.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt
from retable.data.masking import MaskedBatch
from retable.models.base import MarkedEncoder
from retable.nn import fused
from retable.nn.attention import padding_mask
from retable.objectives.base import Objective
from retable.objectives.masked_lm import MaskedLMHead, encode, require_encoder


class ReplacedTokenDetection(Objective):
    """A discriminator `model`, trained with a generator that `generator(vocab_size=…)` creates.

    The generator and the discriminator share token and position embeddings (section 3.2), so the embeddings of the two
    models must have the same width. `weight` is the factor λ.
    """

    model: MarkedEncoder

    def __init__(
        self,
        model: MarkedEncoder,
        vocab_size: PositiveInt,
        generator: Callable[..., MarkedEncoder],
        weight: NonNegative = 50.0,
    ):
        super().__init__()
        require_encoder(model, "replaced_token_detection")
        self.model, self.weight = model, weight
        self.generator = generator(vocab_size=vocab_size)
        require_encoder(self.generator, "replaced_token_detection")
        for each in (model, self.generator):
            if not isinstance(each, MarkedEncoder) or each.positions is None:
                raise UsageError(
                    "replaced_token_detection shares token and position embeddings, which "
                    f"{type(each).__name__} lacks; take recipe=bert/electra, with learnt positions"
                )
        for table in ("embedding", "positions"):
            ours, theirs = getattr(model, table), getattr(self.generator, table)
            if ours.weight.shape != theirs.weight.shape:
                raise UsageError(
                    f"the generator cannot share {table} of shape {tuple(ours.weight.shape)}, because the "
                    f"generator's own weights have shape {tuple(theirs.weight.shape)}; in objective.generator, set "
                    "max_length to the model's max_length, and d_embedding to the width of the model's embeddings"
                )
            setattr(self.generator, table, ours)
        self.generator_head = MaskedLMHead(self.generator, vocab_size, tie=True)
        self.dense = nn.Linear(model.d_model, model.d_model)
        self.head = nn.Linear(model.d_model, 1)
        self.dense.apply(model.initialise)
        self.head.apply(model.initialise)
        model.drop_pooler()
        self.generator.drop_pooler()

    def loss(self, batch: MaskedBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the loss and the metrics of a batch; the metric `replaced` is the share of replaced tokens."""
        hidden = encode(self.generator, batch.input_ids, batch)
        features = self.generator_head(hidden.flatten(0, 1)[batch.places])
        generator_loss = self.generator_head.nats(features, batch.labels) * batch.share
        drawn = self.generator_head.drawn(features, batch.draws)

        text = batch.input_ids.flatten().index_copy(0, batch.places, drawn).view_as(batch.input_ids)
        fooled = drawn != batch.labels  # if the generator draws the original word, the token does not count as replaced
        replaced = text.new_zeros(text.numel()).index_copy(0, batch.places, fooled.long()).view_as(text)
        logits = self.judge(encode(self.model, text, batch)).float()  # (B, T)
        real = padding_mask(batch.lengths, text.shape[1])[:, 0, 0].float()  # (B, T)
        nats = F.binary_cross_entropy_with_logits(logits, replaced.float(), weight=real, reduction="sum")
        of_token = batch.token_share / real.sum()
        discriminator_loss = nats * of_token

        loss = generator_loss + self.weight * discriminator_loss
        right = ((logits > 0) == (replaced > 0)).float() * real
        metrics = {
            "loss": loss.detach(),
            "generator_loss": generator_loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "replaced": replaced.sum() * of_token,
            "replaced_accuracy": right.sum() * of_token,
            "replaced_recall": (right * replaced).sum() / replaced.sum().clamp(min=1),
        }
        return loss, metrics, None

    def judge(self, hidden: Tensor) -> Tensor:
        """Compute the logits (B, T) of "this token was replaced" from the discriminator's states (B, T, D)."""
        return self.head(fused.gelu(self.dense(hidden)))[:, :, 0]
