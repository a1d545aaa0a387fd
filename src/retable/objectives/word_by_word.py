"""The fast path of word vectors on processors: stochastic gradient descent window by window, as word2vec.c runs it.

The batched objectives move a frequent word by the sum of many gradients that were all taken at one place; here each
window sees what the one before it has changed, and no score is computed that no pair asks for.

N words of a slice or cells of a matrix, V vocabulary, D dimensions.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from retable.data.cooccurrences import Cells
from retable.data.windows import WindowSlice
from retable.errors import UsageError
from retable.objectives import kernels
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.negative_sampling import NegativeSampling
from retable.objectives.weighted_least_squares import WeightedLeastSquares

# All pairs of a centre share its noise, so that a draw is scored once for all of them: so many draws for each
# negative of a pair. With 1 the embedded corpus's analogies fall behind gensim's, which draws for each pair; with 3
# they don't (benchmarks/word_vectors.md).
SHARED_DRAWS = 3


class WordByWord(nn.Module):
    """An objective that moves its own weights: `update` in place of `loss`.

    threads: 1 gives the same bytes for the same seed. More share the weights without locks (Recht et al. 2011,
        Hogwild!), as word2vec.c and gensim do: faster, and no two runs are alike to the last digit.

    Several processes learn from their parts of a batch, each from the same weights, and then add up what they changed:
    deterministic for a seed and a number of processes. That sends all tables round after every batch, so the larger
    they are, the larger a batch has to be for it to pay.

    GloVe's cells are fitted by AdaGrad, whose sums of squares begin at 1, whatever the optimizer; that only lends its
    learning rate. UsageError for an objective without such an update.
    """

    objective: Any  # an nn.Module, whose attributes mypy takes for tensors

    def __init__(self, objective: nn.Module, threads: int = 1):
        super().__init__()
        if threads < 1:
            raise UsageError(f"threads={threads} leaves nobody to train; write 1 or more")
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
                for name, table in objective.named_parameters():  # AdaGrad's, from 1 as in GloVe's code
                    self.register_buffer(f"squares_{name.replace('.', '_')}", torch.ones_like(table))
            case _:
                name = type(objective).__name__
                raise UsageError(f"{name} can't be trained word by word; write word_by_word=false")

    def vectors(self) -> Tensor:
        """The words' vectors (V, D), without gradient."""
        return self.objective.vectors()

    def update(
        self, batch: WindowSlice | Cells, step: int, lr: float, total: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Learn from a batch; `total` adds a tensor up over the processes. The metric: mean nats a pair, or cell."""
        if batch[0].device.type != "cpu":
            raise UsageError("training word by word is for processors; write word_by_word=false on a GPU")
        self._processes = self._processes or round(total(torch.ones(())).item())
        before = [table.clone() for table in self._tables()] if self._processes > 1 else []

        ends = np.linspace(0, len(batch[0]), self.threads + 1).astype(np.int64)
        # Training seeds torch with (seed, step, process).
        seeds = torch.randint(1, 2**62, (self.threads,)).numpy().astype(np.uint64)
        parts = list(zip(ends[:-1], ends[1:], seeds, strict=True))
        if self.threads == 1:
            sums = [self._learn(batch, np.float32(lr), *parts[0])]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                sums = list(pool.map(lambda part: self._learn(batch, np.float32(lr), *part), parts))

        for table, start in zip(self._tables(), before, strict=False):
            table.copy_(start + total(table - start))
        loss, pairs = np.sum(sums, axis=0)
        return {"loss": torch.tensor(loss / max(pairs, 1))}

    def _tables(self) -> list[Tensor]:
        """All that an update changes: the weights, and for GloVe as many sums of squared gradients."""
        return [*(parameter.detach() for parameter in self.parameters()), *self.buffers(recurse=False)]

    def _negative_sampling(
        self, batch: WindowSlice, lr: np.float32, start: int, stop: int, seed: np.uint64
    ) -> tuple[float, int]:
        negatives = self.objective.negatives
        draws = negatives if self.objective.model.predicts == "centre" else SHARED_DRAWS * negatives
        arrays = self._arrays(batch, start, stop)
        return kernels.negative_sampling(*arrays, *self._noise, negatives, draws, lr, np.array([seed]))

    def _hierarchical_softmax(
        self, batch: WindowSlice, lr: np.float32, start: int, stop: int, seed: np.uint64
    ) -> tuple[float, int]:
        paths = (self.objective.nodes, self.objective.codes, self.objective.lengths)
        return kernels.hierarchical_softmax(*self._arrays(batch, start, stop), *paths, lr)

    def _arrays(self, batch: WindowSlice, start: int, stop: int) -> tuple[Any, ...]:
        """What both kernels of windows take: the slice, the input table and who is in it, the output table."""
        model = self.objective.model
        window = (batch.words.numpy(), batch.lines.numpy(), batch.reaches.numpy(), start, stop)
        table, units, offsets, scales = model.inputs()
        output = self.objective.output.weight.detach().numpy()
        return *window, model.predicts == "centre", table.numpy(), units, offsets, scales, output

    def _least_squares(self, batch: Cells, lr: np.float32, start: int, stop: int, seed: np.uint64) -> tuple[float, int]:
        cells = (part.numpy() for part in batch)
        tables = (table.numpy() for table in self._tables())
        return kernels.least_squares(*cells, start, stop, *tables, self.objective.x_max, self.objective.power, lr)
