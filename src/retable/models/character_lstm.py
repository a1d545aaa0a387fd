"""An LSTM language model that reads words as characters and predicts words.

Kim et al. 2016, arXiv 1508.06615. Dropout acts on the softmax's input, and on the inputs of all LSTM layers but the
first (the paper's section on optimization).

B batch, T time, D d_model, V vocabulary, L symbols of a word.

System C5 of docs/systems.yaml.
"""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import Filters, NonNegative, NonNegativeInt, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.character_cnn import PADDING, CharacterCNN, Highway, spell
from retable.nn.dropout import Dropout


class CharacterLSTM(LeftToRight):
    """A left-to-right model; `words` are the tokens' spellings, in the order of their ids.

    Args:
        filters: (width, features) pairs of the convolutions; see CharacterCNN.
        init_range: weights are drawn uniformly from ±init_range, and the biases of highway gates from −2 ± init_range.
    """

    _spelling: Tensor

    def __init__(
        self,
        words: Sequence[str],
        d_character: PositiveInt,
        filters: Filters,
        n_highway: NonNegativeInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        init_range: NonNegative,
    ):
        super().__init__()
        self.d_model, self.init_range = d_model, init_range
        # The padding is as long as the widest filter, so that each filter has a window of only padding even in the
        # longest word.
        spelling = spell(words, padding=max(width for width, _ in filters))
        self.register_buffer("_spelling", spelling, persistent=False)  # (V, L)
        self.cnn = CharacterCNN(d_character, filters, n_highway)
        between = dropout if n_layers > 1 else 0.0
        self.layers = nn.LSTM(self.cnn.d_output, d_model, n_layers, batch_first=True, dropout=between)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw uniform weights and biases, also for the objective's softmax layer; set the vector of padding to 0."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)
        if isinstance(module, nn.Embedding):
            nn.init.zeros_(module.weight.data[PADDING])
        if isinstance(module, Highway):  # `apply` initialises the layers in a Highway before the Highway
            nn.init.uniform_(module.gate.bias, -2 - self.init_range, -2 + self.init_range)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state is a pair of hidden states and cell states, (n_layers, B, D) each. Each distinct word is convolved
        only once.
        """
        words, places = input_ids.unique(return_inverse=True)
        vectors = F.embedding(places, self.cnn(self._spelling[words]))
        hidden, state = self.layers(vectors, state)
        return self.dropout(hidden), state
