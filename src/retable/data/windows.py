"""The windows of a text, from which word vectors learn (Mikolov et al. 2013a, b).

N words, R rows, C centres a row, J = C + 2·window contexts a row.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Seed

# The random streams of a seed, told apart by the highest word of Philox's counter. Stream 0 is the objective's noise,
# which is drawn with the same seed and step and must not repeat the numbers that decided which words to keep.
SLICE_ORDER, SUBSAMPLING, SHRINKING = 1, 2, 3

# Centres a row of `rows`. The scores of a row are one small matrix product: the shorter the row the more often a vector
# is read, the longer the more scores are computed that no window asks for.
ROW = 32


class WindowSlice(NamedTuple):
    """The words kept of a slice of the stream, in order. The window of word i holds the words of its line among the
    reaches[i] before it and the reaches[i] after it."""

    words: Tensor  # (N,) int64
    lines: Tensor  # (N,) int64, the number of the line that the word stands in
    reaches: Tensor  # (N,) int64, 1 to `window`
    window: int


class WindowRows(NamedTuple):
    """contexts[r, j] is in the window of centres[r, i] where pairs[r, i, j]."""

    centres: Tensor  # (R, C) int64
    contexts: Tensor  # (R, J) int64: the row's centres and `window` words on either side
    pairs: Tensor  # (R, C, J) bool; ids that only fill a row up are in none


class Windows:
    """The windows of a stream of tokens, a slice of the stream a batch.

    Frequent words are left out before the windows are laid, so windows reach over them (section 2.3 of the second
    paper). A window is shrunk to between 1 and `window` words on either side, uniformly, for every word anew. It
    crosses neither a line end nor the end of the slice (of a process's part of it, where several share one).

    A batch is a pure function of (seed, step). Step s reads one slice in epoch s // steps_per_epoch; every epoch reads
    every slice once, in an order of its own, and leaves out and shrinks anew.

    tokens: ids (n,) of any integer type, may be memory-mapped. UsageError where there are none.
    counts: occurrences of each word (V,) in `tokens`.
    boundary: the id of the line end, which is in no window.
    subsample: word2vec's t, see `keep_probabilities`.
    batch_tokens: tokens of the stream in a slice, with line ends and the words that will be left out. Where a batch is
        one update, all windows of a frequent word pull at its vectors at once: under word2vec's learning rate of 0.025
        a pair and subsample=1e-3, a first version of the embedded corpus learnt as word by word with 1024, and
        diverged with 4096.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        counts: ArrayLike,
        boundary: int,
        window: PositiveInt = 5,
        subsample: NonNegative = 1e-4,
        batch_tokens: PositiveInt | None = 20_000,
        seed: Seed = 1,
    ) -> None:
        if len(tokens) == 0:
            raise UsageError("there are no tokens to lay windows on")
        if window < 1:
            raise UsageError(f"window={window} leaves no context; write window=1 or more")
        if batch_tokens is None or batch_tokens < 1:
            raise UsageError(f"batch_tokens={batch_tokens} leaves a batch without a word; write 1 or more")
        if subsample < 0:
            raise UsageError(f"subsample={subsample} is no frequency; write 0, which keeps all, or more")
        self.steps_per_epoch = -(-len(tokens) // batch_tokens)
        self.tokens_per_step = batch_tokens
        self._tokens, self._boundary, self._window, self._seed = tokens, boundary, window, seed
        self._keep = keep_probabilities(counts, subsample)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> WindowSlice:
        """The part of process `rank` of `world`; the processes' parts in a row are the one-process batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._generator(epoch, SLICE_ORDER).permutation(self.steps_per_epoch)
        start = self._order[1][position] * self.tokens_per_step
        words = np.asarray(self._tokens[start : start + self.tokens_per_step], dtype=np.int64)
        ends = words == self._boundary
        kept = ~ends & (self._generator(step, SUBSAMPLING).random(len(words)) < self._keep[words])
        reaches = self._generator(step, SHRINKING).integers(1, self._window, size=kept.sum(), endpoint=True)
        part = slice(len(reaches) * rank // world, len(reaches) * (rank + 1) // world)
        words, lines, reaches = words[kept][part], np.cumsum(ends)[kept][part], reaches[part]
        return WindowSlice(
            torch.from_numpy(words), torch.from_numpy(lines), torch.from_numpy(reaches), window=self._window
        )

    def _generator(self, index: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self._seed, index], counter=[0, 0, 0, stream]))


def rows(batch: WindowSlice) -> WindowRows:
    """The windows of a batch as matrices, one row at least, on the batch's own device."""
    w = batch.window
    # Padding fills the last row, and puts w words of no line before the first row and after the last.
    missing = -len(batch.words) % ROW if len(batch.words) else ROW
    contexts, lines, reaches = (
        F.pad(part, (w, missing + w), value=filler).unfold(0, ROW + 2 * w, ROW)  # (R, J)
        for part, filler in ((batch.words, 0), (batch.lines, -1), (batch.reaches, 0))
    )
    place = torch.arange(ROW + 2 * w, device=contexts.device)
    distance = (place - place[w:-w, None]).abs()  # (C, J)
    pairs = (distance > 0) & (distance <= reaches[:, w:-w, None])
    pairs &= lines[:, w:-w, None] == lines[:, None, :]
    return WindowRows(contexts[:, w:-w], contexts, pairs)


def keep_probabilities(counts: ArrayLike, subsample: float) -> np.ndarray:
    """The probability (V,) that an occurrence of a word is kept: √(t/f) + t/f, at most 1, as in word2vec.c.

    Equation 5 of the paper has √(t/f). f is the word's share of `counts`; t is `subsample`, 0 keeps all.
    """
    counts = np.asarray(counts, dtype=np.float64)
    if subsample == 0:
        return np.ones_like(counts)
    ratio = subsample * counts.sum() / np.maximum(counts, 1)
    return np.minimum(np.sqrt(ratio) + ratio, 1)
