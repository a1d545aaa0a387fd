"""Word co-occurrence counts: GloVe's matrix X (Pennington et al. 2014, sections 3 and 4.2).

Shapes: n is the number of tokens in the stream or, in `Cells`, the number of cells in a batch; V is the vocabulary
size.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed

SLICE = 1 << 18  # number of tokens that are processed at a time


class Cells(NamedTuple):
    """A batch of non-zero cells of the co-occurrence matrix X."""

    words: Tensor  # (n,) int64
    contexts: Tensor  # (n,) int64
    values: Tensor  # (n,) float32, above 0


class Cooccurrences:
    """Batches of `batch_cells` non-zero cells of the co-occurrence matrix X.

    The cells have a new order in each epoch. X_ij is the sum of 1 / distance over all places where words i and j occur
    in one line, at most `window` words apart. A batch is a pure function of (seed, step).

    Args:
        tokens: token ids, (n,), of any integer type; the array may be memory-mapped.
        counts: number of occurrences of each word, (V,).
        boundary: the id of the line end, which is excluded from X.
        window: number of context words on each side of a word.

    Raises: UsageError: no line of the text has two words, or a setting is below 1.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        counts: ArrayLike,
        boundary: int,
        window: PositiveInt = 10,
        batch_cells: PositiveInt = 100_000,
        seed: Seed = 1,
    ) -> None:
        if window < 1:
            raise UsageError(f"window={window} leaves words without context; write window=1 or more")
        if batch_cells < 1:
            raise UsageError(f"batch_cells={batch_cells} makes batches empty; write batch_cells=1 or more")
        matrix = cooccurrences(tokens, len(np.asarray(counts)), boundary, window).tocoo()
        if matrix.nnz == 0:
            raise UsageError("the text has no two adjacent words to count; use a text with lines of two words or more")
        self.steps_per_epoch = -(-matrix.nnz // batch_cells)
        self._words, self._contexts = matrix.coords
        self._values = matrix.data.astype(np.float32)
        self._batch_cells, self._seed = batch_cells, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Cells:
        """Return the cells of process number `rank` of `world`; the cells of all processes form the step's batch."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            places = np.arange(len(self._values), dtype=np.int32 if len(self._values) < 1 << 31 else np.int64)
            np.random.default_rng((self._seed, epoch)).shuffle(places)
            self._order = epoch, places
        whole = self._order[1][position * self._batch_cells :][: self._batch_cells]
        part = whole[len(whole) * rank // world : len(whole) * (rank + 1) // world]
        words, contexts = (torch.from_numpy(ids[part].astype(np.int64)) for ids in (self._words, self._contexts))
        return Cells(words, contexts, torch.from_numpy(self._values[part]))


def cooccurrences(tokens: np.ndarray, vocab_size: int, boundary: int, window: int) -> csr_array:
    """Compute the co-occurrence matrix X, (V, V), float64.

    The peak memory is the size of X, plus about half of this size (the counts of pairs in text order), plus one slice
    of the stream.

    Args:
        tokens: token ids, (n,); the array may be memory-mapped.
        boundary: the id that ends a line; pairs do not cross it.
        window: largest distance between two words of a pair; a pair at distance d adds 1 / d.
    """
    later = csr_array((vocab_size, vocab_size))  # cell [i, j] counts pairs in which word j comes after word i
    for start in range(0, len(tokens), SLICE):
        ids = np.asarray(tokens[start : start + SLICE + window], dtype=np.int32)
        lines = np.cumsum(ids == boundary)
        first, second, values = [], [], []
        for distance in range(1, window + 1):
            # The first word of a pair must be in the current slice of the stream; the second word may be in the next
            # slice. Each pair is therefore counted exactly once.
            a, b = ids[:-distance][:SLICE], ids[distance:][:SLICE]
            together = (lines[:-distance] == lines[distance:])[:SLICE] & (a != boundary)
            first.append(a[together])
            second.append(b[together])
            values.append(np.full(together.sum(), 1 / distance))
        entries = np.concatenate(values), (np.concatenate(first), np.concatenate(second))
        later += coo_array(entries, shape=later.shape).tocsr()
    return (later + later.T).tocsr()
