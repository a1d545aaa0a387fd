"""Sentence encoders with one-hot input, as baselines for encoders with trained or pretrained word vectors.

Zhang, Zhao and LeCun (2015, "Character-level Convolutional Networks for Text Classification", section 2.2) apply
convolutions to one-hot characters. Recurrent language models on one-hot input are in models/stacked_recurrent.py.

System B0 of docs/systems.yaml.
"""

from retable.core.settings import PositiveInt, Rate, Sizes
from retable.models.bilstm import BiLSTM
from retable.models.convolutional_encoder import ConvolutionalEncoder
from retable.nn.one_hot import OneHot


class OneHotBiLSTM(BiLSTM):
    """A `BiLSTM` that reads one-hot vectors of words instead of learnt vectors."""

    def __init__(self, vocab_size: PositiveInt, d_model: PositiveInt, n_layers: PositiveInt, dropout: Rate = 0.0):
        super().__init__(1, vocab_size, d_model, n_layers, dropout)  # a small placeholder, replaced in the next line
        self.embedding = OneHot(vocab_size)  # type: ignore[assignment]


class OneHotConvolutionalEncoder(ConvolutionalEncoder):
    """A `ConvolutionalEncoder` that reads one-hot vectors of words instead of learnt vectors."""

    def __init__(self, vocab_size: PositiveInt, widths: Sizes, n_features: PositiveInt, dropout: Rate = 0.0):
        super().__init__(1, vocab_size, widths, n_features, dropout)  # a small placeholder, replaced in the next line
        self.embedding = OneHot(vocab_size)  # type: ignore[assignment]
