"""The sentence encoder of GLUE's baseline with attention between the two sentences of a pair (Wang et al. 2018, arXiv
1804.07461, section 5.1: between all pairs of words, after Seo et al. 2017, and a second BiLSTM behind it).

Each word stands beside the mean of the other sentence's states, weighted by the softmax of how much they are like its
own: by the dot product, as in the authors' code. The same second BiLSTM reads both sentences.

B batch, T time, U time of the other sentence, D d_model.
"""

import torch
from torch import Tensor

from retable.core.settings import PositiveInt, Rate
from retable.models.base import PairEncoder
from retable.models.bilstm import BiLSTM
from retable.nn.bidirectional_lstm import BidirectionalLSTM


class BiLSTMAttention(BiLSTM, PairEncoder):
    """Two sequences of token ids to the states of both, each read with an eye on the other."""

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
        """(B, T) and (B, U) ids, padded behind each row's length, to (B, T, D) and (B, U, D), zero on padding."""
        own, its = self(input_ids, lengths), self(other_ids, other_lengths)
        similarity = own @ its.mT  # (B, T, U)
        return (
            self._model(own, attend(similarity, its, other_lengths), lengths),
            self._model(its, attend(similarity.mT, own, lengths), other_lengths),
        )

    def _model(self, hidden: Tensor, seen: Tensor, lengths: Tensor) -> Tensor:
        return self.dropout(self.modelling(torch.cat([hidden, seen], dim=2), lengths))


def attend(similarity: Tensor, states: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, U) similarities to `states` (B, U, D), padded behind each row's length, to weighted means (B, T, D)."""
    padding = torch.arange(states.shape[1], device=states.device) >= lengths[:, None]
    return similarity.masked_fill(padding[:, None], float("-inf")).softmax(dim=2) @ states
