"""A BiLSTM-CNN sequence tagger, without its output layer (Ma and Hovy 2016, section 2).

arXiv 1603.01354. The model is that of Lample et al. 2016, with a convolution over characters instead of an LSTM. A
bidirectional LSTM reads word vectors and convolutions over characters; the objective adds the softmax or CRF. For
sub-words, and for words without spelling, use models/bilstm.py, which has no convolution over characters.

With `d_predicate`, each word also has a vector that marks whether it is the predicate, as in He et al. 2017, section
2.2. With this vector, the model labels semantic roles (F6 of docs/systems.yaml), as in Zhou and Xu 2015 with a CRF.

Departures: a tanh follows the convolution's max-pooling, and characters have no dropout; see nn/character_cnn.py.

B batch, T time, D d_model, E d_embedding, F features of the convolutions, P d_predicate.

System F5 of docs/systems.yaml.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from retable.core.settings import Filters, NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.dropout import Dropout
from retable.nn.predicate import PredicateIndicator
from retable.nn.word_input import WordInput


class BiLSTMTagger(Encoder):
    """An encoder with one hidden state per word, which depends on the whole sentence.

    Args:
        vocab_size, words, unknown, filters: see WordInput; the paper's settings are filters=[[3, 30]], d_character=30.
        dropout: rate on the LSTM's input, between its layers, and on its output.
        d_predicate: width of the vectors that mark the predicate; 0 for tags that do not depend on a predicate.
    """

    reads_words = marks_predicates = two_ends = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        filters: Filters,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
        d_predicate: NonNegativeInt = 0,
    ):
        super().__init__()
        self.d_model, self.d_predicate = d_model, d_predicate
        self.input = WordInput(vocab_size, words, unknown, d_embedding, d_character, filters)
        self.predicate = PredicateIndicator(d_predicate) if d_predicate else None
        self.layers = BidirectionalLSTM(self.input.d_output + d_predicate, d_model, n_layers, dropout)
        self.dropout = Dropout(dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(self, input_ids: Tensor, lengths: Tensor, predicates: Tensor | None = None) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length.

        `predicates` (B,) is the position of each sentence's predicate, required if `d_predicate` is above 0.
        """
        words = self.input(input_ids)  # (B, T, E + F)
        if self.predicate is not None:
            words = torch.cat([words, self.predicate(predicates, input_ids.shape[1])], dim=2)  # (B, T, E + F + P)
        return self.dropout(self.layers(self.dropout(words), lengths))
