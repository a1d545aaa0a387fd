"""ELMo: a forward and a backward LSTM language model that share the input layer.

Peters et al. 2018, "Deep contextualized word representations", arXiv 1802.05365, section 3; Peters et al. 2017 and
Jozefowicz et al. 2016. Word vectors are either computed from characters (`nn/character_cnn.py`, with a projection),
which works for any word, or looked up in a table. Each direction is a stack of LSTMs with projections and residual
links between layers. Dropout acts on the top layer's output, and on each layer's input before the residual link
branches off. Initial weights follow the authors' code (bilm-tf), because the paper does not describe them fully.

Departures:
- torch's LSTM does not clip cells and projections (the authors clip at ±3). The LSTM has two bias vectors per gate; the
  second is initialised to 0.
- A tanh follows the character convolution (the authors use a ReLU). The characters are UTF-8 bytes.
- The token that separates sentences is read as a string of characters, like any word.

B batch, T time, D d_model, C d_cell, L n_layers, V vocabulary.

System D1 of docs/systems.yaml.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from retable.core.errors import UsageError
from retable.core.settings import Filters, NonNegativeInt, PositiveInt, Rate
from retable.models.base import BothDirections
from retable.nn.character_cnn import PADDING, CharacterCNN, Highway, spell
from retable.nn.dropout import Dropout


class ELMo(BothDirections):
    """A two-directional language model of token ids; `words` lists the tokens' spellings, in the order of ids.

    Args:
        d_cell: width of the LSTM cells. A matrix projects the cells to d_model, unless d_cell and d_model are equal.
        filters: (width, features) pairs of the character convolutions (see CharacterCNN), or None for a table of word
            vectors.
        d_character, n_highway: width of a character's vector, and number of highway layers.
    """

    _spelling: Tensor

    def __init__(
        self,
        words: Sequence[str],
        d_model: PositiveInt,
        d_cell: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        filters: Filters | None,
        d_character: PositiveInt = 16,
        n_highway: NonNegativeInt = 2,
    ):
        super().__init__()
        self.d_model, self.reads_spelling = d_model, filters is not None
        if filters is None:
            self.embedding = nn.Embedding(len(words), d_model)
        else:
            self._widest = max(width for width, _ in filters)
            self.register_buffer("_spelling", spell(words, padding=self._widest), persistent=False)  # (V, symbols)
            self.cnn = CharacterCNN(d_character, filters, n_highway, d_projection=d_model)
        self.forward_stack = Stack(d_model, d_cell, n_layers, dropout)
        self.backward_stack = Stack(d_model, d_cell, n_layers, dropout)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Initialise weights as bilm-tf does, also for the objective's softmax layer."""
        if isinstance(module, nn.Embedding) and module.padding_idx is None:
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.Embedding):  # the table of characters
            nn.init.uniform_(module.weight, -1.0, 1.0)
            nn.init.zeros_(module.weight.data[PADDING])
        if isinstance(module, nn.Linear | nn.Conv1d):
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, Highway):  # `apply` initialises the layers in a Highway before the Highway
            nn.init.constant_(module.gate.bias, -2.0)
        if isinstance(module, nn.LSTM):
            _initialise_lstm(module)

    def forward(self, input_ids: Tensor, state: Any, backward: bool) -> tuple[Tensor, Any]:
        """Return the top hidden states (B, T, D) of one direction for ids (B, T), and the state for the next call.

        The ids are in the order in which the direction reads them: with `backward`, the first id is the last token of
        the text. The state is a pair of hidden states (L, B, D) and cell states (L, B, C); None means zeros.
        """
        stack = self.backward_stack if backward else self.forward_stack
        hidden, state = stack(self.embed(input_ids), state)
        return self.dropout(hidden[-1]), state

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the states (B, T, 2D) of all layers, 0 on padding, for ids (B, T) padded after each row's length.

        The states of layer 0 are the word vectors, concatenated with themselves. The states of each other layer
        concatenate the forward and the backward LSTM's states.
        """
        return self._layers(self.embed(input_ids), lengths)

    def layers_of_words(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the states of all layers, as `layers` does, for words instead of ids. Any word is allowed.

        T is the length of the longest sentence.

        Raises: UsageError: this ELMo has a table of word vectors instead of a character convolution.
        """
        if not self.reads_spelling:
            raise UsageError("this ELMo looks words up in a table and cannot read their spelling; use recipe=elmo/elmo")
        rows = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(sentences)))}
        table = self.cnn(spell(rows, padding=self._widest).to(self._spelling.device))
        places = [torch.tensor([rows[word] for word in sentence], device=table.device) for sentence in sentences]
        lengths = torch.tensor([len(sentence) for sentence in sentences], device=table.device)
        return self._layers(F.embedding(pad_sequence(places, batch_first=True), table), lengths)

    def embed(self, input_ids: Tensor) -> Tensor:
        """Embed ids (B, T) as context-free vectors (B, T, D). The character CNN runs once per distinct word."""
        if not self.reads_spelling:
            return self.embedding(input_ids)
        words, places = input_ids.unique(return_inverse=True)
        return F.embedding(places, self.cnn(self._spelling[words]))

    def _layers(self, vectors: Tensor, lengths: Tensor) -> list[Tensor]:
        time = torch.arange(vectors.shape[1], device=lengths.device)
        inside = time < lengths[:, None]  # (B, T)
        turned = torch.where(inside, lengths[:, None] - 1 - time, time)  # indices that reverse tokens but not padding

        def turn(hidden: Tensor) -> Tensor:
            return hidden.take_along_dim(turned[:, :, None], dim=1)

        forward, _ = self.forward_stack(vectors, None)
        backward, _ = self.backward_stack(turn(vectors), None)
        pairs = [(vectors, vectors), *zip(forward, map(turn, backward), strict=True)]
        return [torch.cat(pair, dim=2).masked_fill(~inside[:, :, None], 0.0) for pair in pairs]


class Stack(nn.Module):
    """One direction of an ELMo: LSTM layers with d_cell cells, projected to d_model.

    All layers but the first have a residual link.
    """

    def __init__(self, d_model: int, d_cell: int, n_layers: int, dropout: float):
        super().__init__()
        d_projection = 0 if d_cell == d_model else d_model
        self.layers = nn.ModuleList(
            nn.LSTM(d_model, d_cell, batch_first=True, proj_size=d_projection) for _ in range(n_layers)
        )
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, state: Any) -> tuple[list[Tensor], Any]:
        """Return each layer's states (B, T, D), and the last hidden states (L, B, D) and cell states (L, B, C)."""
        outputs, after = [], []
        for i, layer in enumerate(self.layers):
            below = self.dropout(hidden)
            above, end = layer(below, None if state is None else (state[0][i : i + 1], state[1][i : i + 1]))
            hidden = below + above if i else above
            outputs.append(hidden)
            after.append(end)
        h, c = zip(*after, strict=True)
        return outputs, (torch.cat(h), torch.cat(c))


def _initialise_lstm(layer: nn.LSTM) -> None:
    """Draw an LSTM's weights uniformly within the bounds of Glorot and Bengio (2010).

    The input weights and the state weights of an LSTM share one bound, because TensorFlow has one matrix for both. The
    projection has its own bound. Biases are 1 for the forget gate, and 0 for all other gates.
    """
    d_cell, d_state = layer.hidden_size, layer.proj_size or layer.hidden_size
    gates = (6 / (layer.input_size + d_state + 4 * d_cell)) ** 0.5
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif "hr" in name:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.uniform_(parameter, -gates, gates)
    nn.init.ones_(layer.get_parameter("bias_ih_l0").data[d_cell : 2 * d_cell])  # the order of gates is i, f, g, o
