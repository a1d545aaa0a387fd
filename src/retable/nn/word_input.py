"""The input layer of taggers and readers: a word's vector, its capitals, and a convolution over its characters.

Santos and Zadrozny 2014; Ma and Hovy 2016, arXiv 1603.01354, section 2.1. The vectors of capitals are those of
Collobert et al. 2011.

V words with vectors, W words with spellings, E d_embedding, C d_capitals, F features of the convolutions, L symbols
of a word.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.nn.character_cnn import PADDING, CharacterCNN, spell


class WordInput(nn.Module):
    """A layer that maps word ids to vectors of E + C + F dimensions; `words` (W) lists spellings in the order of ids.

    The first `vocab_size` words have separate word vectors. All other words are too rare or too new to train a vector:
    they share the vector of the id `unknown`, and differ only by their characters. With `folds_case`, words that differ
    only in case share the vector of the first such word.

    Args:
        d_embedding: width E of the vectors of words.
        d_character: width of the vector of a symbol.
        filters: pairs of a filter's width and its number of features; F is the total number of features. Without
            filters, characters are not read.
        d_capitals: width C of the vector for the capitals of a word (see `capitals`); 0 for no such vector.
    """

    _spelling: Tensor
    _rows: Tensor  # (W,): index of each word's row in the embedding table
    _capitals: Tensor  # (W,): index of the vector for each word's capitals

    def __init__(
        self,
        vocab_size: int,
        words: Sequence[str],
        unknown: int,
        d_embedding: int,
        d_character: int = 0,
        filters: Sequence[tuple[int, int]] = (),
        folds_case: bool = False,
        d_capitals: int = 0,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.d_output = d_embedding + d_capitals
        self.capitals = nn.Embedding(4, d_capitals) if d_capitals else None
        if self.capitals is not None:
            nn.init.normal_(self.capitals.weight, std=d_embedding**-0.5)
            self.register_buffer("_capitals", torch.tensor([capitals(word) for word in words]), persistent=False)
        self.cnn = CharacterCNN(d_character, filters, n_highway=0) if filters else None
        if self.cnn is not None:
            self.d_output += self.cnn.d_output
            self._widest = max(width for width, _ in filters)
            self.register_buffer("_spelling", spell(words, padding=self._widest), persistent=False)  # (W, L)
        rows = folded(words) if folds_case else torch.arange(len(words))
        self.register_buffer("_rows", rows.where(rows < vocab_size, unknown), persistent=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (…) to vectors (…, E + C + F).

        The convolution runs once per distinct word. Spellings are cut after the longest word and one window of padding,
        because more padding does not change any maximum.
        """
        parts = [self.embedding(self._rows[input_ids])]
        if self.capitals is not None:
            parts.append(self.capitals(self._capitals[input_ids]))
        if self.cnn is not None:
            words, places = input_ids.unique(return_inverse=True)
            spelling = self._spelling[words]
            spelling = spelling[:, : int((spelling != PADDING).sum(dim=1).max()) + self._widest]
            parts.append(F.embedding(places, self.cnn(spelling)))
        return torch.cat(parts, dim=-1)


def folded(words: Sequence[str]) -> Tensor:
    """Return, for each word, the index of the first word with the same lower-case form: (W,)."""
    first: dict[str, int] = {}
    return torch.tensor([first.setdefault(word.lower(), place) for place, word in enumerate(words)])


def capitals(word: str) -> int:
    """Return 0 for a word without capitals, 1 for capitals only, 2 for a capital first, 3 for any other capital."""
    if word.isupper():
        return 1
    return 2 if word[:1].isupper() else 3 if any(map(str.isupper, word)) else 0
