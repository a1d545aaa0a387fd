"""GLUE's baseline encoder for sentence pairs, with attention between the two sentences.

Wang et al. 2018, arXiv 1804.07461, section 5.1: attention between all pairs of words, as in Seo et al. 2017, then a
second BiLSTM. Each word's state is concatenated with the mean of the other sentence's states, weighted by a softmax of
dot products, as in the authors' code. The same second BiLSTM reads both sentences.

B batch, T time, U time of the other sentence, D d_model.
"""

import torch
from torch import Tensor

from retable.core.settings import PositiveInt, Rate
from retable.models.base import PairEncoder
from retable.models.bilstm import BiLSTM
from retable.nn.bidirectional_lstm import BidirectionalLSTM


class BiLSTMAttention(BiLSTM, PairEncoder):
    """An encoder that reads two sentences, each with attention to the other."""

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate = 0.0,
    ):
        super().__init__(vocab_size, d_embedding, d_model, n_layers, dropout)
        self.modelling = BidirectionalLSTM(2 * d_model, d_model)

    def read_pair(
        self, input_ids: Tensor, lengths: Tensor, other_ids: Tensor, other_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return two texts' states (B, T, D) and (B, U, D), zero on padding, for their ids."""
        own, other = self(input_ids, lengths), self(other_ids, other_lengths)
        similarity = own @ other.mT  # (B, T, U)
        return (
            self._model(own, attend(similarity, other, other_lengths), lengths),
            self._model(other, attend(similarity.mT, own, lengths), other_lengths),
        )

    def _model(self, hidden: Tensor, seen: Tensor, lengths: Tensor) -> Tensor:
        return self.dropout(self.modelling(torch.cat([hidden, seen], dim=2), lengths))


def attend(similarity: Tensor, states: Tensor, lengths: Tensor) -> Tensor:
    """Return means (B, T, D) of `states` (B, U, D), weighted by the softmax of similarities (B, T, U).

    `states` are padded after `lengths` (B,).
    """
    padding = torch.arange(states.shape[1], device=states.device) >= lengths[:, None]
    return similarity.masked_fill(padding[:, None], float("-inf")).softmax(dim=2) @ states
