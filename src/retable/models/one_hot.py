"""B0: the sentence encoders on one-hot input, the baseline of those on learnt or given vectors.

Convolutions on one-hot characters are the input of Zhang, Zhao and LeCun (2015, "Character-level Convolutional Networks
for Text Classification", section 2.2). Recurrent language models on it are in models/stacked_recurrent.py.
"""

from retable.core.settings import PositiveInt, Rate, Sizes
from retable.models.bilstm import BiLSTM
from retable.models.convolutional_encoder import ConvolutionalEncoder
from retable.nn.one_hot import OneHot


class OneHotBiLSTM(BiLSTM):
    """`BiLSTM` without a table of vectors below it."""

    def __init__(self, vocab_size: PositiveInt, d_model: PositiveInt, n_layers: PositiveInt, dropout: Rate = 0.0):
        super().__init__(1, vocab_size, d_model, n_layers, dropout)  # with a table of one word, which goes
        self.embedding = OneHot(vocab_size)  # type: ignore[assignment]


class OneHotConvolutionalEncoder(ConvolutionalEncoder):
    """`ConvolutionalEncoder` without a table of vectors below it."""

    def __init__(self, vocab_size: PositiveInt, widths: Sizes, n_features: PositiveInt, dropout: Rate = 0.0):
        super().__init__(1, vocab_size, widths, n_features, dropout)  # with a table of one word, which goes
        self.embedding = OneHot(vocab_size)  # type: ignore[assignment]
