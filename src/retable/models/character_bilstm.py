"""The LSTM-CRF of Lample et al. 2016, without its output layer: LSTMs over characters, then over words.

arXiv 1603.01360, sections 2 and 4. A word is read as its vector and the last states of two LSTMs, one per direction,
over its characters. Two LSTMs read the words, and a hidden layer reads both states of a word. Dropout acts only on the
input of the LSTMs over words. The objective adds the linear layer and the CRF.

Departures:
- Characters are UTF-8 bytes, at most 48 per word. In English text, a character is one byte.
- Marks of a sentence's start and end are read before its first and after its last word.
- A word that occurs once in training has its pretrained vector, or otherwise the vector of the unknown word. In the
  paper, such a word has its own vector, and is replaced by the unknown word with probability 0.5.

Not stated in the paper, and as in the authors' code (glample/tagger): the width of the hidden layer, which is that of
one LSTM, its tanh, the trained first states of the LSTMs, and the initial weights.

B batch, T time, D d_model, E d_embedding, S d_spelling, W different words, L symbols of a word.

System F5 of docs/systems.yaml.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.nn.bidirectional_lstm import mirrored, taken
from retable.nn.character_cnn import END_OF_WORD, N_SYMBOLS, spell
from retable.nn.coupled_lstm import CoupledLSTM
from retable.nn.dropout import Dropout
from retable.nn.word_input import WordInput


class CharacterBiLSTM(Encoder):
    """An encoder with one hidden state per word, which depends on the whole sentence.

    Args:
        words: spellings of words, in the order of their ids.
        unknown: id of the unknown word, whose vector also stands for the words after the first `vocab_size`.
        d_character: width of the vector of a character.
        d_spelling: width S of the states of each LSTM over characters; 0 to read no characters.
        d_model: width D of the states of each LSTM over words, and of the hidden layer.
        dropout: rate on the input of the LSTMs over words.
    """

    reads_words = True
    _spelling: Tensor  # (W, L): the bytes of each word, an end mark, and padding

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_character: PositiveInt,
        d_spelling: NonNegativeInt,
        d_model: PositiveInt,
        dropout: Rate,
        unknown: NonNegativeInt = 0,
    ):
        super().__init__()
        self.d_model = d_model
        self.input = WordInput(vocab_size, words, unknown, d_embedding)
        self.characters = nn.Embedding(N_SYMBOLS, d_character) if d_spelling else None
        if self.characters is not None:
            self.register_buffer("_spelling", spell(words, padding=0)[:, 1:], persistent=False)  # without begin marks
            self.spelling = nn.ModuleList(CoupledLSTM(d_character, d_spelling) for _ in range(2))
        self.layers = nn.ModuleList(CoupledLSTM(d_embedding + 2 * d_spelling, d_model) for _ in range(2))
        self.hidden = nn.Linear(2 * d_model, d_model)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Set uniform weights of variance 2 / (rows + columns), also for the scores of tags, and biases of 0."""
        if isinstance(module, nn.Embedding | nn.Linear):
            for parameter in module.parameters():
                (nn.init.xavier_uniform_ if parameter.ndim == 2 else nn.init.zeros_)(parameter)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, D) for ids (B, T) padded after each row's length."""
        words = self.input(input_ids)  # (B, T, E)
        if self.characters is not None:
            words = torch.cat([words, self._spelt(input_ids)], dim=2)  # (B, T, E + 2S)
        states = _from_both_ends(self.layers, self.dropout(words), lengths)  # (B, T, 2D)
        return torch.tanh(self.hidden(states))

    def _spelt(self, input_ids: Tensor) -> Tensor:
        """Return the last states of both LSTMs over the characters of each word, (B, T, 2S)."""
        assert self.characters is not None
        different, places = input_ids.unique(return_inverse=True)
        spelling = self._spelling[different]
        lengths = (spelling < END_OF_WORD).sum(dim=1)  # (W,), without end marks and padding
        states = _from_both_ends(self.spelling, self.characters(spelling[:, : int(lengths.max())]), lengths)
        forth, back = states.chunk(2, dim=2)
        return F.embedding(places, torch.cat([taken(forth, lengths[:, None] - 1)[:, 0], back[:, 0]], dim=1))


def _from_both_ends(lstms: nn.ModuleList, inputs: Tensor, lengths: Tensor) -> Tensor:
    """Return the states of two LSTMs, which read rows from the left and from the right, side by side."""
    forth, back = lstms
    mirror = mirrored(lengths.to(inputs.device), inputs.shape[1])
    return torch.cat([forth(inputs), taken(back(taken(inputs, mirror)), mirror)], dim=2)
