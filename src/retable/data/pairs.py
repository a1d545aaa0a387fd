"""Batches of skip-gram's pairs (Mikolov et al. 2013b, "Distributed Representations of Words and Phrases").

R rows, C centres a row, J = C + 2·window contexts a row.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from retable.errors import UsageError

# The random streams of a seed, told apart by the highest word of Philox's counter. Stream 0 is the
# objective's noise, which is drawn with the same seed and step and must not repeat the numbers that decided
# which words to keep.
SLICE_ORDER, SUBSAMPLING, SHRINKING = 1, 2, 3


class PairBatch(NamedTuple):
    """centres[r, i] and contexts[r, j] are a pair where pairs[r, i, j]."""

    centres: Tensor  # (R, C) int64
    contexts: Tensor  # (R, J) int64: the row's centres and `window` words on either side
    pairs: Tensor  # (R, C, J) bool; ids that only fill a row up are in none


class SkipGramBatches:
    """All pairs (centre word, word in its window) of a stream of tokens, a slice of the stream a batch.

    Frequent words are left out before the windows are laid, so windows reach over them (section 2.3). A
    window is shrunk to between 1 and `window` words on either side, uniformly, for every centre anew. It
    crosses neither a line end nor the end of the slice; the latter cuts off less than 1 % of the pairs.

    A batch is a pure function of (seed, step). Step s reads one slice in epoch s // steps_per_epoch; every
    epoch reads every slice once, in an order of its own, and leaves out and shrinks anew.

    tokens: ids (n,) of any integer type, may be memory-mapped. UsageError where there are none.
    counts: occurrences of each word (V,) in `tokens`.
    boundary: the id of the line end. It is in no pair.
    subsample: word2vec's t, see `keep_probabilities`.
    batch_tokens: tokens of the stream in a slice, with line ends and the words that will be left out. A batch
        is one update, so all pairs of a frequent word pull at its vectors at once: under word2vec's learning
        rate of 0.025 a pair, the embedded corpus at subsample=1e-3 learns as word by word with 1024, and
        diverges with 4096.
    """

    # Centres a row. The scores of a row are one small matrix product: the shorter the row the more often a
    # vector is read, the longer the more scores are computed that no window asks for.
    ROW = 32

    def __init__(
        self,
        tokens: np.ndarray,
        counts: ArrayLike,
        boundary: int,
        window: int = 5,
        subsample: float = 1e-4,
        batch_tokens: int = 1024,
        seed: int = 1,
    ) -> None:
        if len(tokens) == 0:
            raise UsageError("there are no tokens to make skip-gram's pairs of")
        if window < 1:
            raise UsageError(f"window={window} leaves no context; write window=1 or more")
        self.steps_per_epoch = -(-len(tokens) // batch_tokens)
        self._tokens, self._boundary, self._window = tokens, boundary, window
        self._batch_tokens, self._seed = batch_tokens, seed
        self._keep = keep_probabilities(counts, subsample)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        words, line, reach = self._slice(step)
        w, n_rows = self._window, -(-len(words) // self.ROW)
        # Padding fills the last row, and puts w words of no line before the first row and after the last.
        pad = (w, n_rows * self.ROW - len(words) + w)
        words, line, reach = np.pad(words, pad), np.pad(line, pad, constant_values=-1), np.pad(reach, pad)
        first = np.arange(rank, n_rows, world)[:, None] * self.ROW
        contexts = first + np.arange(self.ROW + 2 * w)  # (R, J)
        centres = contexts[:, w:-w]  # (R, C)
        distance = np.abs(np.arange(self.ROW + 2 * w) - np.arange(self.ROW)[:, None] - w)  # (C, J)
        pairs = (distance > 0) & (distance <= reach[centres][:, :, None])
        pairs &= line[centres][:, :, None] == line[contexts][:, None, :]
        return PairBatch(*map(torch.from_numpy, (words[centres], words[contexts], pairs)))

    def _slice(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The words kept of the step's slice: ids, numbers of their lines, reaches of their windows."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = self._generator(epoch, SLICE_ORDER).permutation(self.steps_per_epoch)
        start = order[position] * self._batch_tokens
        words = np.asarray(self._tokens[start : start + self._batch_tokens], dtype=np.int64)
        ends = words == self._boundary
        kept = ~ends & (self._generator(step, SUBSAMPLING).random(len(words)) < self._keep[words])
        reach = self._generator(step, SHRINKING).integers(1, self._window, size=kept.sum(), endpoint=True)
        return words[kept], np.cumsum(ends)[kept], reach

    def _generator(self, index: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self._seed, index], counter=[0, 0, 0, stream]))


def keep_probabilities(counts: ArrayLike, subsample: float) -> np.ndarray:
    """The probability (V,) that an occurrence of a word is kept: √(t/f) + t/f, at most 1, as in word2vec.c.

    Equation 5 of the paper has √(t/f). f is the word's share of `counts`; t is `subsample`, 0 keeps all.
    """
    counts = np.asarray(counts, dtype=np.float64)
    if subsample == 0:
        return np.ones_like(counts)
    ratio = subsample * counts.sum() / np.maximum(counts, 1)
    return np.minimum(np.sqrt(ratio) + ratio, 1)
