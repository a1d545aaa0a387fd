"""T5's encoder without its decoder, to be fine-tuned as a classifier.

The paper does not contain this model; in the paper, T5 generates labels as text. The model shows how good the encoder's
features are without a decoder.

B batch, T time, D d_model.
"""

from typing import Literal

from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import Encoder
from retable.models.t5 import T5
from retable.nn.attention import padding_mask_if_any


class T5Encoder(Encoder):
    """An encoder that consists of the encoder stack of a T5.

    Args:
        d_model, n_layers, n_heads, d_ff, dropout, activation, d_head: as in `T5`.
    """

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
        # The decoder is created too, then discarded. One random generator draws the weights of both stacks. Without the
        # decoder's draws, this encoder's initial weights would differ from those of a T5's encoder with the same seed.
        whole = T5(vocab_size, d_model, n_layers, n_heads, d_ff, dropout, activation, d_head)
        self.d_model, self.embedding, self.encoder = d_model, whole.embedding, whole.encoder

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {"embedding.": self.embedding, "encoder.": self.encoder}

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D) for ids (B, T), which are padded after each row's length."""
        return self.encoder(self.embedding(input_ids), padding_mask_if_any(lengths, input_ids.shape[1]))[0]
