"""The input layer of taggers and readers: a word's vector, and a convolution over the word's characters.

Santos and Zadrozny 2014; Ma and Hovy 2016, arXiv 1603.01354, section 2.1.

V words with vectors, W words with spellings, E d_embedding, F features of the convolutions, L symbols of a word.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.nn.character_cnn import PADDING, CharacterCNN, spell


class WordInput(nn.Module):
    """A layer that maps word ids to vectors of E + F dimensions; `words` (W) lists spellings in the order of ids.

    The first `vocab_size` words have separate word vectors. All other words are too rare or too new to train a vector:
    they share the vector of the id `unknown`, and differ only by their characters. With `folds_case`, words that differ
    only in case share the vector of the first such word.

    Args:
        d_embedding: width E of the vectors of words.
        d_character: width of the vector of a symbol.
        filters: pairs of a filter's width and its number of features; F is the total number of features.
    """

    _spelling: Tensor
    _rows: Tensor  # (W,): index of each word's row in the embedding table

    def __init__(
        self,
        vocab_size: int,
        words: Sequence[str],
        unknown: int,
        d_embedding: int,
        d_character: int,
        filters: Sequence[tuple[int, int]],
        folds_case: bool = False,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        nn.init.normal_(self.embedding.weight, std=d_embedding**-0.5)
        self.cnn = CharacterCNN(d_character, filters, n_highway=0)
        self._widest = max(width for width, _ in filters)
        self.register_buffer("_spelling", spell(words, padding=self._widest), persistent=False)  # (W, L)
        rows = folded(words) if folds_case else torch.arange(len(words))
        self.register_buffer("_rows", rows.where(rows < vocab_size, unknown), persistent=False)
        self.d_output = d_embedding + self.cnn.d_output

    def forward(self, input_ids: Tensor) -> Tensor:
        """Map ids (…) to vectors (…, E + F).

        The convolution runs once per distinct word. Spellings are cut after the longest word and one window of padding,
        because more padding does not change any maximum.
        """
        words, places = input_ids.unique(return_inverse=True)
        spelling = self._spelling[words]
        spelling = spelling[:, : int((spelling != PADDING).sum(dim=1).max()) + self._widest]
        return torch.cat([self.embedding(self._rows[input_ids]), F.embedding(places, self.cnn(spelling))], dim=-1)


def folded(words: Sequence[str]) -> Tensor:
    """Return, for each word, the index of the first word with the same lower-case form: (W,)."""
    first: dict[str, int] = {}
    return torch.tensor([first.setdefault(word.lower(), place) for place, word in enumerate(words)])
