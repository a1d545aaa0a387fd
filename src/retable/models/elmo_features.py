"""A sentence encoder with ELMo features (Peters et al. 2018, arXiv 1802.05365, sections 3.2, 3.3).

The layers of a pretrained ELMo are mixed into one vector per word. The task's recurrent network reads this vector,
concatenated with the task's own word vector. `layers` selects some of the ELMo's layers, as in the paper's section 5.1.

Departures: the network is GLUE's sentence encoder; the loss has no penalty λ‖s‖² on the mixing weights.

B batch, T time, D d_model, E d_embedding, W d_model of the ELMo.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.dropout import Dropout
from retable.nn.scalar_mix import ScalarMix


class ELMoBiLSTM(Encoder):
    """A bidirectional LSTM encoder over word vectors and ELMo features, [x; ELMo(x)].

    Args:
        elmo: function that creates the ELMo from `words`. If `frozen` is true, the ELMo's weights are fixed and its
            dropout is off.
        layers: indices of the ELMo layers to mix, or None for all layers; 0 is the input layer, which has no context.
    """

    two_ends = True

    def __init__(
        self,
        words: Sequence[str],
        elmo: Callable[..., Any],
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate = 0.0,
        frozen: bool = True,
        layers: Sequence[NonNegativeInt] | None = None,
    ):
        super().__init__()
        self.d_model, self.frozen = d_model, frozen
        self.elmo = elmo(words=words).requires_grad_(not frozen).train(not frozen)
        n_elmo = len(self.elmo.forward_stack.layers) + 1
        self.mixed = list(range(n_elmo)) if layers is None else list(layers)
        if not self.mixed or not set(self.mixed) <= set(range(n_elmo)):
            raise UsageError(f"model.layers={self.mixed} are not ELMo layers; write indices from 0 to {n_elmo - 1}")
        for stack in (self.elmo.forward_stack, self.elmo.backward_stack):
            stack.layers[max(self.mixed) :].requires_grad_(False)  # layers above the last mixed layer are unused
        self.mix = ScalarMix(len(self.mixed))
        self.embedding = nn.Embedding(len(words), d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.dropout = Dropout(dropout)
        self.layers = BidirectionalLSTM(d_embedding + 2 * self.elmo.d_model, d_model, n_layers, dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {"": self.elmo}

    def train(self, mode: bool = True) -> "ELMoBiLSTM":
        super().train(mode)
        if self.frozen:
            self.elmo.eval()
        return self

    def features(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the mixed ELMo layers (B, T, 2W), zero on padding, for ids (B, T) padded after each row's length."""
        layers = self.elmo.layers(input_ids, lengths)
        return self.mix([layers[k] for k in self.mixed], lengths)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length."""
        words = torch.cat([self.embedding(input_ids), self.features(input_ids, lengths)], dim=2)  # (B, T, E + 2W)
        return self.dropout(self.layers(self.dropout(words), lengths))
