"""Context windows of a text, for the training of word vectors (Mikolov et al. 2013a, b).

Shapes: N words, R rows, C centres per row, J = C + 2·window contexts per row.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Seed

# Numbers of the random streams. A stream's number is the highest word of the Philox generator's counter. Stream 0 is
# used by the objective, for its noise. All streams of a step use the same seed, so the stream numbers must differ.
SLICE_ORDER, SUBSAMPLING, SHRINKING = 1, 2, 3

# Number of centre words per row of `rows`. The scores of a row are computed by one small matrix product. With shorter
# rows, each vector is read more often; with longer rows, more of the computed scores are outside all windows.
ROW = 32


class WindowSlice(NamedTuple):
    """One slice of the token stream: the words that remain after subsampling, in order.

    The window of word i contains the `reaches[i]` words before and after word i, except words of other lines.
    """

    words: Tensor  # (N,) int64
    lines: Tensor  # (N,) int64, the line number of each word
    reaches: Tensor  # (N,) int64, 1 to `window`
    window: int


class WindowRows(NamedTuple):
    """Windows as matrices: if pairs[r, i, j] is True, contexts[r, j] is a word in the window of centres[r, i]."""

    centres: Tensor  # (R, C) int64
    contexts: Tensor  # (R, J) int64: the centres of the row, and `window` words before and after them
    pairs: Tensor  # (R, C, J) bool; False for padding


class Windows:
    """Batches of context windows; each batch is one slice of the stream.

    Occurrences of frequent words are removed at random before windows are formed, so a window reaches across removed
    words (Mikolov et al. 2013b, section 2.3). The size of each window is drawn uniformly from 1 to `window` words on
    each side. A window does not cross line ends, the ends of the slice, or the ends of a process's part of the slice.

    A batch is a pure function of (seed, step). Each epoch reads every slice once, in a new order, with newly drawn
    removals and window sizes.

    Args:
        tokens: token ids, (n,), of any integer type; the array may be memory-mapped.
        counts: number of occurrences of each word in `tokens`, (V,).
        boundary: id of the line end, which is excluded from all windows.
        window: the largest number of context words on each side.
        subsample: word2vec's t, see `keep_probabilities`.
        batch_tokens: tokens per slice, including line ends and removed words. If each batch is one update, a frequent
            word's vector changes by the sum of the gradients of all its windows, so training can diverge. With
            word2vec's learning rate of 0.025 per pair and subsample=1e-3, we trained on an early version of Retable's
            built-in corpus. 1024 tokens per slice were as good as one update per word; with 4096 tokens, training
            diverged.

    Raises: UsageError: `tokens` is empty, or a setting is out of range.
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
            raise UsageError("the text has no tokens; use a text with words")
        if window < 1:
            raise UsageError(f"window={window} leaves words without context; write window=1 or more")
        if batch_tokens is None or batch_tokens < 1:
            raise UsageError(f"batch_tokens={batch_tokens} makes batches empty; write batch_tokens=1 or more")
        if subsample < 0:
            raise UsageError(f"subsample={subsample} is negative; write 0, which keeps all words, or a greater number")
        self.steps_per_epoch = -(-len(tokens) // batch_tokens)
        self.tokens_per_step = batch_tokens
        self._tokens, self._boundary, self._window, self._seed = tokens, boundary, window, seed
        self._keep = keep_probabilities(counts, subsample)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> WindowSlice:
        """Return the part of process number `rank` of `world`; the parts of all processes form the step's batch."""
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
    """Convert the windows of a batch to matrices with at least one row, on the batch's device."""
    w = batch.window
    # Padding completes the last row, and adds w words before the first row and after the last row. All padding has the
    # line number −1.
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
    """Compute each word's probability to be kept in the text, (V,): min(√(t/f) + t/f, 1), as in word2vec.c.

    f is the relative frequency of the word, and t is `subsample`; t = 0 keeps all words. In the paper, the probability
    is √(t/f) (Mikolov et al. 2013b, equation 5).
    """
    counts = np.asarray(counts, dtype=np.float64)
    if subsample == 0:
        return np.ones_like(counts)
    ratio = subsample * counts.sum() / np.maximum(counts, 1)
    return np.minimum(np.sqrt(ratio) + ratio, 1)
