"""The BLSTM-CNNs-CRF of Ma and Hovy 2016, without its output layer: a convolution over characters, LSTMs over words.

arXiv 1603.01354, sections 2 and 3.1. A word is read as its vector and the maxima of a convolution over its characters.
Dropout acts on the vectors of characters, and on the input of the LSTMs. The objective adds the dropout on the output
of the LSTMs, and the softmax or the CRF. Tagger `models/tagger.py` has a similar network and other initial weights.

Departures:
- Characters are UTF-8 bytes, at most 48 per word, with a mark at the start and at the end of the word.
- Marks of a sentence's start and end are read before its first and after its last word.
- The objective's CRF has one score per pair of tags. In the paper, this score depends on the state of the word.

Not stated in the paper: the tanh after the convolution, which is that of the authors' code (XuezheMax/LasagneNLP), and
the vector of a word that occurs at most once in training and has no pretrained vector, which is the vector of the
unknown word. In the code, each such word has its own vector.

B batch, T time, D d_model, E d_embedding, C d_character, F filters, L symbols of a word.

System F5 of docs/systems.yaml.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.character_cnn import N_SYMBOLS, PADDING, spell
from retable.nn.dropout import Dropout
from retable.nn.word_input import WordInput


class CNNBiLSTM(Encoder):
    """An encoder with one hidden state per word, which depends on the whole sentence.

    Args:
        words: spellings of words, in the order of their ids.
        unknown: id of the unknown word, whose vector also stands for the words after the first `vocab_size`.
        d_character: width C of the vector of a character.
        n_filters: number F of features of the convolution; 0 to read no characters.
        window: number of characters that a filter reads.
        d_model: width D of a state, half of it for each direction.
        dropout: rate on the vectors of characters and on the input of the LSTMs.
    """

    reads_words = two_ends = True
    _spelling: Tensor  # (V, L)

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        n_filters: NonNegativeInt,
        window: PositiveInt,
        d_model: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
    ):
        super().__init__()
        self.d_model, self.window = d_model, window
        self.input = WordInput(vocab_size, words, unknown, d_embedding)
        self.characters = nn.Embedding(N_SYMBOLS, d_character, padding_idx=PADDING) if n_filters else None
        if self.characters is not None:
            self.register_buffer("_spelling", spell(words, padding=window), persistent=False)
            self.convolution = nn.Conv1d(d_character, n_filters, window)
        self.layers = BidirectionalLSTM(d_embedding + n_filters, d_model)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Set the initial weights of section 3.1, also for the scores of tags.

        Vectors of words and characters are uniform with the variance 1 / width, and matrices with the variance
        2 / (rows + columns). Biases are 0, but those of forget gates are 1.
        """
        if isinstance(module, nn.Embedding):
            bound = (3 / module.embedding_dim) ** 0.5
            nn.init.uniform_(module.weight, -bound, bound)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight.data[module.padding_idx])
        elif isinstance(module, nn.LSTM):
            for name, parameter in module.named_parameters():
                of_gates = parameter.data.chunk(4)  # of the input gate, forget gate, new cell and output gate
                for number, part in enumerate(of_gates):
                    if part.ndim == 2:
                        nn.init.xavier_uniform_(part)
                    else:  # torch adds two biases
                        nn.init.constant_(part, float(number == 1 and name.startswith("bias_ih")))
        elif isinstance(module, nn.Linear | nn.Conv1d):
            nn.init.xavier_uniform_(module.weight)
            assert module.bias is not None
            nn.init.zeros_(module.bias)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D), zero on padding, for ids (B, T) padded after each row's length."""
        words = self.input(input_ids)  # (B, T, E)
        if self.characters is not None:
            words = torch.cat([words, self._spelt(input_ids)], dim=2)  # (B, T, E + F)
        return self.layers(self.dropout(words), lengths)

    def _spelt(self, input_ids: Tensor) -> Tensor:
        """Return the largest value of each filter over the characters of each word, (B, T, F)."""
        assert self.characters is not None
        spelling = self._spelling[input_ids.flatten()]
        longest = int((spelling != PADDING).sum(dim=1).max())
        # More padding than one window does not change a maximum.
        characters = self.dropout(self.characters(spelling[:, : longest + self.window]))
        features = self.convolution(characters.mT).amax(dim=2).tanh()  # tanh keeps order: the same as max of tanh
        return features.view(*input_ids.shape, -1)
