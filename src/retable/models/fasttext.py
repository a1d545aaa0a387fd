"""fastText's skip-gram (Bojanowski et al. 2017, "Enriching Word Vectors with Subword Information").

R rows, C centres a row, J contexts a row, D d_model, V vocabulary, U units: the words and the buckets of n-grams.
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
    """Skip-gram whose word vector is composed of units: the word's own and those of its character n-grams.

    The paper sums them up. fastText's code takes the mean and moves each of the n units by the mean's whole gradient,
    which is no gradient of any loss; here the sum is divided by √n, so that a gradient step moves the composed vector
    exactly as far as that rule does, and a learning rate means the same for words of any length, and for skip-gram.

    Its noise is ∝ count^0.5 in fastText's code, where word2vec and gensim have 0.75: objective.power=0.5 with it.

    buckets: of n-grams, which share a vector where their hashes do; 2,000,000 in the paper.
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
            raise UsageError(f"buckets={buckets} leaves n-grams no vector; write 1 or more, or max_n=0 for no n-grams")
        self.d_model, self.min_n, self.max_n, self.buckets = d_model, min_n, max_n, buckets
        self._ids = {word: i for i, word in enumerate(words)}
        units = [[i, *self._ngrams(word)] for word, i in self._ids.items()]
        sizes = np.array([len(of_word) for of_word in units])
        # The units of word w are units[offsets[w] : offsets[w + 1]], the first of them w itself.
        self.units = np.concatenate(units).astype(np.int32)
        self.offsets = np.concatenate([[0], sizes.cumsum()])
        self.scales = (sizes**-0.5).astype(np.float32)
        for name in ("units", "offsets", "scales"):
            self.register_buffer(f"_{name}", torch.from_numpy(getattr(self, name)), persistent=False)
        self.subwords = nn.Embedding(len(words) + buckets, d_model)
        nn.init.uniform_(self.subwords.weight, -0.5 / d_model, 0.5 / d_model)  # as in word2vec.c

    def forward(self, centres: Tensor, contexts: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The windows of (R, C) centres among (R, J) contexts, (R, C, J) pairs, to the vectors (R, C, D) that predict,
        the words (R, J) that are predicted, and which goes with which (R, C, J)."""
        return self._compose(centres.flatten()).view(*centres.shape, -1), contexts, pairs

    @torch.no_grad()
    def vectors(self) -> Tensor:
        """The words' composed vectors (V, D), without gradient."""
        return self._compose(torch.arange(len(self.scales), device=self._offsets.device))

    def vector(self, word: str) -> np.ndarray:
        """The vector (D,) of any string; one that is not in the vocabulary has its n-grams alone, or, too short to have
        any, 0."""
        known = [self._ids[word]] if word in self._ids else []
        units = self.subwords.weight.detach()[known + self._ngrams(word)]
        return (units.sum(0) * max(len(units), 1) ** -0.5).cpu().numpy()

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """table (U, D), units, offsets (V + 1,), scales (V,): the input of word w is scales[w] times the sum of
        table[units[offsets[w] : offsets[w + 1]]]. The table is the weights themselves."""
        return self.subwords.weight.detach(), self.units, self.offsets, self.scales

    def _ngrams(self, word: str) -> list[int]:
        """The rows of a word's n-grams."""
        return [len(self._ids) + hashed % self.buckets for hashed in ngram_hashes(word, self.min_n, self.max_n)]

    def _compose(self, words: Tensor) -> Tensor:
        """(n,) ids to composed vectors (n, D)."""
        sizes = self._offsets[words + 1] - self._offsets[words]
        starts = sizes.cumsum(0) - sizes
        places = (self._offsets[words] - starts).repeat_interleave(sizes)
        places += torch.arange(len(places), device=places.device)
        sums = F.embedding_bag(self._units[places].long(), self.subwords.weight, starts, mode="sum")
        return sums * self._scales[words, None]


def ngram_hashes(word: str, min_n: int, max_n: int) -> list[int]:
    """fastText's 32-bit hashes of the n-grams of `<word>`, from each character on, the shorter first.

    FNV-1a over the bytes of UTF-8, but for one slip that its vectors depend on: a byte from 128 on is taken for a
    negative number and spoils the upper bits too. A lone < or > is no n-gram.
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
