"""fastText's skip-gram (Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information").

R rows, C centres per row, J contexts per row, D d_model, V vocabulary, U units: the words and the buckets of n-grams.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, PositiveInt
from retable.models.base import WindowModel


class FastText(WindowModel):
    """A skip-gram model that composes a word's vector from units: one for the word, one for each character n-gram.

    The paper adds up the vectors of a word's n units. The code of fastText uses the mean of these vectors, but moves
    each of the vectors by the mean's whole gradient, which is not the gradient of any loss. Here the sum is divided by
    √n, so that a gradient step moves the composed vector as far as in fastText's code. With this factor, a learning
    rate has the same effect as in skip-gram, however many n-grams a word has.

    fastText's code draws noise words with probability ∝ count^0.5. Set objective.power=0.5 to draw noise words as
    fastText's code does; word2vec and gensim use the power 0.75.

    Args:
        buckets: number of vectors for n-grams; the paper has 2,000,000. N-grams whose hashes are in the same bucket
            share a vector.
    """

    predicts = "context"
    composes = True
    _units: Tensor
    _offsets: Tensor
    _scales: Tensor

    def __init__(
        self,
        words: Sequence[str],
        d_model: PositiveInt,
        min_n: PositiveInt = 3,
        max_n: NonNegativeInt = 6,
        buckets: PositiveInt = 2_000_000,
    ) -> None:
        super().__init__()
        if buckets < 1:
            raise UsageError(f"buckets={buckets} is out of range; write 1 or more (and max_n=0 to use no n-grams)")
        self.d_model, self.min_n, self.max_n, self.buckets = d_model, min_n, max_n, buckets
        self._ids = {word: i for i, word in enumerate(words)}
        units = [[i, *self._ngrams(word)] for word, i in self._ids.items()]
        sizes = np.array([len(of_word) for of_word in units])
        # The units of word w are units[offsets[w] : offsets[w + 1]]; the first unit is w itself.
        self.units = np.concatenate(units).astype(np.int32)
        self.offsets = np.concatenate([[0], sizes.cumsum()])
        self.scales = (sizes**-0.5).astype(np.float32)
        for name in ("units", "offsets", "scales"):
            self.register_buffer(f"_{name}", torch.from_numpy(getattr(self, name)), persistent=False)
        self.subwords = nn.Embedding(len(words) + buckets, d_model)
        nn.init.uniform_(self.subwords.weight, -0.5 / d_model, 0.5 / d_model)  # as in word2vec.c

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the centres' vectors (R, C, D), the ids (R, J) of the contexts to predict, and `pairs` (R, C, J).

        `centres` (R, C) and `contexts` (R, J) are ids. `pairs` marks the contexts of each centre.
        """
        return self._compose(centres.flatten()).view(*centres.shape, -1), contexts, pairs

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """Return the words' composed vectors (V, D), without gradient."""
        return self._compose(torch.arange(len(self.scales), device=self._offsets.device))

    def vector(self, word: str) -> np.ndarray:
        """Return the vector (D,) of any string.

        For a string outside the vocabulary, the vector is composed of its n-grams only, and is 0 if the string is too
        short for an n-gram.
        """
        known = [self._ids[word]] if word in self._ids else []
        units = self.subwords.weight.detach()[known + self._ngrams(word)]
        return (units.sum(0) * max(len(units), 1) ** -0.5).cpu().numpy()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Return the table (U, D), units, offsets (V + 1,) and scales (V,) that `WindowModel.inputs` describes."""
        return self.subwords.weight.detach(), self.units, self.offsets, self.scales

    def _ngrams(self, word: str) -> list[int]:
        """List the table rows of a word's n-grams."""
        return [len(self._ids) + hashed % self.buckets for hashed in ngram_hashes(word, self.min_n, self.max_n)]

    def _compose(self, words: Tensor) -> Tensor:
        """Compose the vectors (n, D) of word ids (n,)."""
        sizes = self._offsets[words + 1] - self._offsets[words]
        starts = sizes.cumsum(0) - sizes
        places = (self._offsets[words] - starts).repeat_interleave(sizes)
        places += torch.arange(len(places), device=places.device)
        sums = F.embedding_bag(self._units[places].long(), self.subwords.weight, starts, mode="sum")
        return sums * self._scales[words, None]


def ngram_hashes(word: str, min_n: int, max_n: int) -> list[int]:
    """Compute fastText's 32-bit hashes of the n-grams of `<word>`, ordered by start position, then by length.

    The hash is FNV-1a over the UTF-8 bytes, but, as in fastText's code, a byte of 128 or more is sign-extended, which
    also changes the upper bits of the hash. Vectors trained by fastText depend on this sign extension. The brackets <
    and > by themselves do not count as n-grams.
    """
    letters = [letter.encode() for letter in f"<{word}>"]
    hashes = []
    for start in range(len(letters)):
        hashed = 2166136261
        for n, letter in enumerate(letters[start : start + max_n], 1):
            for byte in letter:
                hashed = (hashed ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
            bracket = n == 1 and start in (0, len(letters) - 1)
            if n >= min_n and not bracket:
                hashes.append(hashed)
    return hashes
