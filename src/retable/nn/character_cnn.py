"""Word vectors computed from characters (Kim, Jernite, Sontag and Rush 2016, section 2).

arXiv 1508.06615. The layers are convolutions over a word's characters, the maximum of each feature over the word, and
highway layers (Srivastava, Greff and Schmidhuber 2015). With a projection on top, the network is ELMo's input layer.

Departure: characters are UTF-8 bytes, numbered as in ELMo, so that no character is unknown. In English text, a
character is one byte.

W words, L symbols of a word, C d_character, F features.

System C5 of docs/systems.yaml.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

N_SYMBOLS = 262
LENGTH = 50  # maximum number of symbols per word, including begin and end marks
BEGIN_OF_WORD, END_OF_WORD, PADDING = 259, 260, 261  # byte b has symbol b + 1


def spell(words: Iterable[str], padding: int) -> Tensor:
    """Encode words as symbols (W, L): begin mark, at most 48 bytes, end mark, then padding.

    L is the number of symbols of the longest word, plus `padding`.

    Args:
        padding: number of padding symbols after the longest word.
    """
    rows = [[BEGIN_OF_WORD, *(byte + 1 for byte in word.encode()[: LENGTH - 2]), END_OF_WORD] for word in words]
    ids = torch.full((len(rows), max(map(len, rows)) + padding), PADDING)
    for row, symbols in zip(ids, rows, strict=True):
        row[: len(symbols)] = torch.tensor(symbols)
    return ids


class CharacterCNN(nn.Module):
    """A network that maps the symbols of words to vectors.

    `filters` lists pairs: the width of a filter, and its number of features. F is the total number of features. Vectors
    have `d_projection` dimensions, or F dimensions if `d_projection` is None.

    Args:
        d_character: width of a symbol's vector.
        n_highway: number of highway layers.
        d_projection: width of the vectors after a linear projection; None means no projection.
    """

    def __init__(
        self, d_character: int, filters: Sequence[tuple[int, int]], n_highway: int, d_projection: int | None = None
    ):
        super().__init__()
        n_features = sum(features for _, features in filters)
        self.d_output = n_features if d_projection is None else d_projection
        self.characters = nn.Embedding(N_SYMBOLS, d_character, padding_idx=PADDING)
        self.filters = nn.ModuleList(nn.Conv1d(d_character, features, width) for width, features in filters)
        self.highway = nn.ModuleList(Highway(n_features) for _ in range(n_highway))
        self.projection = nn.Identity() if d_projection is None else nn.Linear(n_features, d_projection)

    def forward(self, ids: Tensor) -> Tensor:
        """Return vectors (W, d_output) of symbols (W, L), where L must be at least the width of the widest filter."""
        characters = self.characters(ids).mT  # (W, C, L)
        maxima = [convolve(characters).max(dim=2).values for convolve in self.filters]
        hidden = torch.tanh(torch.cat(maxima, dim=1))  # (W, F); tanh keeps order: the same as max of tanh
        for layer in self.highway:
            hidden = layer(hidden)
        return self.projection(hidden)


class Highway(nn.Module):
    """The layer t ⊙ relu(W_H y + b_H) + (1 − t) ⊙ y, with the gate t = σ(W_T y + b_T).

    The gate's bias is initialised to −2, so that initially the layer changes its input y little.
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.transform = nn.Linear(d_model, d_model)
        self.gate = nn.Linear(d_model, d_model)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        transformed, gate = self.transform(inputs).relu(), self.gate(inputs).sigmoid()
        return inputs.to(gate.dtype).lerp(transformed, gate)  # under autocast the gate is bf16
