"""Group examples of similar lengths into batches, to limit padding."""

from collections.abc import Iterator

import numpy as np

POOL = 50  # number of batches per pool; the examples of a pool are sorted by length


class Buckets:
    """A division of example indices into batches; each epoch contains every example once, in a new random order.

    The shuffled examples are divided into pools of 50 batches, and each pool is sorted by length before it is cut into
    batches. The batch sizes of an epoch differ by at most one example.

    Args:
        lengths: lengths of the examples, (N,).
        batch_size: largest number of examples per batch.
        seed: seed of the random orders.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int):
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self._order: tuple[int, list[np.ndarray]] = (-1, [])

    def places(self, step: int, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the example indices of process number `rank` of `world`, and the example indices of the whole batch.

        The first array is empty if the batch has no example for this process. The two arrays of indices are pure
        functions of (seed, step).

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        places = self._order[1][index]
        return places[rank::world], places

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._lengths))
        size = self._batch_size * POOL
        pools = [order[i : i + size] for i in range(0, len(order), size)]
        ordered = np.concatenate([pool[np.argsort(self._lengths[pool], kind="stable")] for pool in pools])
        batches = np.array_split(ordered, self.steps_per_epoch)
        return [batches[i] for i in generator.permutation(len(batches))]


def by_length(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the indices of all examples once, the shortest first, in batches, for evaluation.

    Args:
        lengths: lengths of the examples, (N,).
    """
    order = np.argsort(lengths, kind="stable")
    for i in range(0, len(order), batch_size):
        yield order[i : i + batch_size]
