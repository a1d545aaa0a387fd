"""The encoder of T5 alone, to be fine-tuned as a classifier. Not in the paper, whose T5 writes its labels: this shows
what the encoder has learnt, with no decoder to make up for it.

B batch, T time, D d_model.
"""

from typing import Literal

from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import Encoder
from retable.models.t5 import T5
from retable.nn.attention import padding_mask_if_any


class T5Encoder(Encoder):
    """Token ids to hidden states that have seen the whole sequence; the settings are those of the T5."""

    initialise = staticmethod(T5.initialise)

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        d_ff: PositiveInt,
        dropout: Rate,
        activation: Literal["relu", "geglu"] = "relu",
        d_head: PositiveInt | None = None,
    ):
        super().__init__()
        # With a decoder, though it is dropped: the weights of both are drawn in turns from one generator, which can't
        # skip numbers, so that without it a seed would give another encoder than the T5's.
        whole = T5(vocab_size, d_model, n_layers, n_heads, d_ff, dropout, activation, d_head)
        self.d_model, self.embedding, self.encoder = d_model, whole.embedding, whole.encoder

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        """What takes the weights of a pretrained T5, by what their names begin with."""
        return {"embedding.": self.embedding, "encoder.": self.encoder}

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) ids, padded behind each row's length, to (B, T, D) hidden states."""
        return self.encoder(self.embedding(input_ids), padding_mask_if_any(lengths, input_ids.shape[1]))[0]
