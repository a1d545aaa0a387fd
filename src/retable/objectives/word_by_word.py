"""Fast training of word vectors: stochastic gradient descent per window, as in word2vec.c.

Batched objectives update a frequent word once per batch, by a sum of gradients that are all computed with the same
weights. Here, the weights are updated after each window, and scores are computed only for pairs that occur. Compiled
loops do this on CPUs. A GPU is too slow for single windows, so on a GPU the weights are updated after each group of
windows, by autograd.

Shapes: N words of a slice or cells of a matrix, V vocabulary, D dimensions.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.data.cooccurrences import Cells
from retable.data.windows import WindowSlice
from retable.models.base import WindowModel
from retable.objectives import kernels
from retable.objectives.base import SelfUpdating, VectorLearning
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.negative_sampling import NegativeSampling
from retable.objectives.weighted_least_squares import WeightedLeastSquares

# Numbers of words or of GloVe's cells per update on a GPU. In larger groups, the sum of a frequent word's gradients is
# too large: with 512 words, fastText diverged on a text of 1,000 types (corpus english_small).
WORDS, CELLS = 256, 1024


class WordByWord(SelfUpdating):
    """Stochastic gradient descent on an objective of word vectors: per window on a CPU, per group of windows on a GPU.

    The settings of the configured optimizer are ignored, except the learning rate. GloVe is always fitted by AdaGrad,
    whose sums of squared gradients start at 1.

    Args:
        threads: number of CPU threads, each of which trains on a part of every batch with its own copy of the weights.
            After each batch, the changes of all copies are added up, and also the changes of all processes. Therefore,
            two runs with the same seed, number of threads and number of processes produce the same weights, byte for
            byte. (word2vec.c and gensim use Hogwild!: their threads share the weights without locks. With Hogwild! and
            a vocabulary of a few thousand words, two cores would mostly wait for each other's cache lines.) Copying the
            rows that a batch may change takes time, and processes exchange whole tables, so large tables need large
            batches.
    Raises: UsageError: the objective cannot be trained word by word.
    """

    def __init__(self, objective: VectorLearning, threads: int = 1):
        super().__init__()
        if threads < 1:
            raise UsageError(f"threads={threads} is out of range; write 1 or more")
        self.objective, self.threads = objective, threads
        self._processes = 0
        match objective:
            case NegativeSampling():
                self._learn: Callable[..., tuple[float, int]] = self._negative_sampling
                self._noise = kernels.alias_table(objective.noise)
            case HierarchicalSoftmax():
                self._learn = self._hierarchical_softmax
            case WeightedLeastSquares():
                self._learn = self._least_squares
                for name, table in objective.named_parameters():  # the sums start at 1, as in GloVe's code
                    self.register_buffer(f"squares_{name.replace('.', '_')}", torch.ones_like(table))
            case _:
                name = type(objective).__name__
                raise UsageError(f"{name} cannot be trained word by word; write word_by_word=false")
        # np.empty uses memory only for the rows that are written later.
        shapes = [table.shape for table in self._tables()] if threads > 1 else []
        self._copies = [np.empty((threads, *shape), np.float32) for shape in shapes]  # shapes: (threads, rows, columns)

    def vectors(self) -> Tensor:
        return self.objective.vectors()

    def update(
        self, batch: WindowSlice | Cells, step: int, lr: float, total: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Train on a batch; the metric `loss` is the mean loss per word pair (GloVe: per cell)."""
        tables = self._tables()
        self._processes = self._processes or round(total(torch.ones((), device=tables[0].device)).item())
        before = [table.clone() for table in tables] if self._processes > 1 else []
        loss = self._loop(batch, lr) if batch[0].device.type == "cpu" else self._in_groups(batch, step, lr)
        for table, start in zip(tables, before, strict=False):
            table.copy_(total(table.sub_(start)).add_(start))
        return {"loss": loss}

    def _in_groups(
        self, batch: WindowSlice | Cells, step: int, lr: float, words: int = WORDS, cells: int = CELLS
    ) -> Tensor:
        """Train on a batch by autograd, with one update per group; return the mean of the groups' losses.

        Args:
            words, cells: number of words or of GloVe's cells in a group. Windows do not cross the ends of groups.
        """
        parameters, losses = [*self.parameters()], []
        squares: list[Tensor | None] = [*self.buffers(recurse=False)] or [None] * len(parameters)
        for number, group in enumerate(_groups(batch, words if isinstance(batch, WindowSlice) else cells)):
            # Each group draws its own noise words.
            loss, metrics, _ = self.objective.loss(group, None, (step << 20) + number)
            slopes = torch.autograd.grad(loss, parameters)
            losses.append(metrics["loss"])
            with torch.no_grad():
                for parameter, slope, square in zip(parameters, slopes, squares, strict=True):
                    if square is None:
                        parameter.sub_(slope, alpha=lr)
                    else:  # AdaGrad
                        parameter.addcdiv_(slope, square.addcmul_(slope, slope).sqrt(), value=-lr)
        return torch.stack(losses).mean() if losses else torch.zeros(())

    def _loop(self, batch: WindowSlice | Cells, lr: float) -> Tensor:
        """Train on a batch by the compiled loops; return the mean loss per word pair."""
        shared = [table.numpy() for table in self._tables()]
        rows = self._rows(batch, shared) if self.threads > 1 else []

        ends = np.linspace(0, len(batch[0]), self.threads + 1).astype(np.int64)
        # The seeds are reproducible, because training seeds torch with (seed, step, process).
        seeds = torch.randint(1, 2**62, (self.threads,)).numpy().astype(np.uint64)

        def learn(thread: int) -> tuple[float, int]:
            own = [copies[thread] for copies in self._copies] or shared
            for copy, table, moving in zip(own, shared, rows, strict=False):
                kernels.copy_rows(copy, table, moving)
            return self._learn(batch, own, np.float32(lr), ends[thread], ends[thread + 1], seeds[thread])

        def add_up(thread: int) -> None:
            for table, copies, moving in zip(shared, self._copies, rows, strict=False):
                kernels.add_changes(table, copies, np.array_split(moving, self.threads)[thread])

        with ThreadPoolExecutor(self.threads) as pool:
            in_turn = pool.map if self.threads > 1 else map
            sums = list(in_turn(learn, range(self.threads)))
            list(in_turn(add_up, range(self.threads)))
        loss, pairs = np.sum(sums, axis=0)
        return torch.tensor(loss / max(pairs, 1))

    def _tables(self) -> list[Tensor]:
        """List all tensors that an update changes: the weights and, for GloVe, the sums of squared gradients."""
        return [*(parameter.detach() for parameter in self.parameters()), *self.buffers(recurse=False)]

    def _rows(self, batch: WindowSlice | Cells, tables: list[np.ndarray]) -> list[np.ndarray]:
        """List the rows that a batch may change, per table; in the input table, only the rows of the batch's words."""
        rows = [np.arange(len(table)) for table in tables]
        if isinstance(batch, WindowSlice):
            assert isinstance(self.objective.model, WindowModel)
            _, units, offsets, _ = self.objective.model.inputs()
            rows[0] = kernels.rows_of(batch.words.numpy(), units, offsets, len(tables[0]))
        return rows

    def _negative_sampling(
        self, batch: WindowSlice, tables: list[np.ndarray], lr: np.float32, start: int, stop: int, seed: np.uint64
    ) -> tuple[float, int]:
        windows = self._windows(batch, tables, start, stop)
        return kernels.negative_sampling(*windows, *self._noise, self.objective.negatives, lr, np.array([seed]))

    def _hierarchical_softmax(
        self, batch: WindowSlice, tables: list[np.ndarray], lr: np.float32, start: int, stop: int, seed: np.uint64
    ) -> tuple[float, int]:
        paths = (self.objective.nodes, self.objective.codes, self.objective.lengths)
        return kernels.hierarchical_softmax(*self._windows(batch, tables, start, stop), *paths, lr)

    def _windows(self, batch: WindowSlice, tables: list[np.ndarray], start: int, stop: int) -> tuple[Any, ...]:
        """Return the arguments that both window kernels need: slice, input table with its units, output table."""
        model = self.objective.model
        assert isinstance(model, WindowModel)
        dimensions = (None,) * model.d_model
        words = (batch.words.numpy(), batch.lines.numpy(), batch.reaches.numpy(), start, stop)
        (table, output), (_, units, offsets, scales) = tables, model.inputs()
        return dimensions, *words, model.predicts == "centre", table, units, offsets, scales, output

    def _least_squares(
        self, batch: Cells, tables: list[np.ndarray], lr: np.float32, start: int, stop: int, seed: np.uint64
    ) -> tuple[float, int]:
        cells = (part.numpy() for part in batch)
        return kernels.least_squares(*cells, start, stop, *tables, self.objective.x_max, self.objective.power, lr)


def _groups(batch: WindowSlice | Cells, size: int) -> Iterator[WindowSlice | Cells]:
    """Split a batch into groups of `size` words or cells, in order."""
    for start in range(0, len(batch[0]), size):
        parts: dict[str, Any] = {name: part for name, part in batch._asdict().items() if isinstance(part, Tensor)}
        yield batch._replace(**{name: part[start : start + size] for name, part in parts.items()})
