"""F5 with D1: the sequence tagger on the layers of a pretrained ELMo (Peters et al. 2018, arXiv 1802.05365, sections
3.3 and 4, named entities).

The layers of the ELMo, mixed into one vector a word, stand beside the word's own vector and what a convolution makes of
its characters, as the input of the tagger's LSTM.

Departures: those of models/tagger.py; the loss has no λ‖s‖².

B batch, T time, D d_model, E d_embedding, F features of the convolutions, P d_predicate, W d_model of the
ELMo.
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
    """Word ids to a hidden state for each word; sentences stand between the ends that the ELMo was pretrained with.

    elmo: makes the ELMo of `words=…`. While `frozen`, it keeps its weights, and its dropout is off.
    The others: see BiLSTMTagger.
    """

    spelt = marks_predicates = two_ends = True

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
        """What takes the weights of a pretrained model, by what their names begin with."""
        return {"": self.elmo}

    def train(self, mode: bool = True) -> "ELMoTagger":
        super().train(mode)
        if self.frozen:
            self.elmo.eval()
        return self

    def forward(self, input_ids: Tensor, lengths: Tensor, predicates: Tensor | None = None) -> Tensor:
        """(B, T) ids, padded behind each row's length, and with `d_predicate` the places (B,) of the predicates, to
        (B, T, D) hidden states, zero on padding."""
        features = self.mix(self.elmo.layers(input_ids, lengths), lengths)  # (B, T, 2W)
        words = torch.cat([self.input(input_ids), features], dim=2)  # (B, T, E + F + 2W)
        if self.predicate is not None:
            words = torch.cat([words, self.predicate(predicates, input_ids.shape[1])], dim=2)  # and P
        return self.dropout(self.layers(self.dropout(words), lengths))
