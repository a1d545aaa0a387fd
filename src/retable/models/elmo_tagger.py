"""A sequence tagger that reads the layers of a pretrained ELMo.

Peters et al. 2018, arXiv 1802.05365, section 3.3, and section 4 on named entities. For each word, the tagger's LSTM
reads a word vector, a convolution over characters, and the mixture of the ELMo's layers.

Departures: those listed in models/tagger.py; the loss has no penalty λ‖s‖² on the mixing weights s.

B batch, T time, D d_model, E d_embedding, F features of the convolutions, P d_predicate, W d_model of the ELMo.

Systems F5 and D1 of docs/systems.yaml.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from retable.core.settings import Filters, NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.dropout import Dropout
from retable.nn.predicate import PredicateIndicator
from retable.nn.scalar_mix import ScalarMix
from retable.nn.word_input import WordInput


class ELMoTagger(Encoder):
    """An encoder with one hidden state per word.

    Sentences start and end with the tokens that marked start and end in the ELMo's training.

    Args:
        elmo: function that creates the ELMo from `words`. If `frozen` is true, the ELMo's weights are fixed and its
            dropout is off.
        other arguments: see BiLSTMTagger.
    """

    reads_words = marks_predicates = two_ends = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        elmo: Callable[..., Any],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        filters: Filters,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
        frozen: bool = True,
        d_predicate: NonNegativeInt = 0,
    ):
        super().__init__()
        self.d_model, self.d_predicate, self.frozen = d_model, d_predicate, frozen
        self.elmo = elmo(words=words).requires_grad_(not frozen).train(not frozen)
        self.mix = ScalarMix(len(self.elmo.forward_stack.layers) + 1)
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters)
        self.predicate = PredicateIndicator(d_predicate) if d_predicate else None
        d_input = self.input.d_output + d_predicate + 2 * self.elmo.d_model
        self.layers = BidirectionalLSTM(d_input, d_model, n_layers, dropout)
        self.dropout = Dropout(dropout)

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {"": self.elmo}

    def train(self, mode: bool = True) -> "ELMoTagger":
        super().train(mode)
        if self.frozen:
            self.elmo.eval()
        return self

    def forward(self, input_ids: Tensor, lengths: Tensor, predicates: Tensor | None = None) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length.

        `predicates` (B,) is the position of each sentence's predicate, required if `d_predicate` is above 0.
        """
        features = self.mix(self.elmo.layers(input_ids, lengths), lengths)  # (B, T, 2W)
        words = torch.cat([self.input(input_ids), features], dim=2)  # (B, T, E + F + 2W)
        if self.predicate is not None:
            words = torch.cat([words, self.predicate(predicates, input_ids.shape[1])], dim=2)  # (B, T, E + F + 2W + P)
        return self.dropout(self.layers(self.dropout(words), lengths))
