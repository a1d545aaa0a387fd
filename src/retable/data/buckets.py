"""Which examples share a batch: those alike in length, so that little is padded."""

from collections.abc import Iterator

import numpy as np

POOL = 50  # batches


class Buckets:
    """Every epoch all examples in a new order; neighbours in a pool of 50 batches are sorted by length.

    The batches of an epoch are of one size, but for one example.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int):
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self.steps_per_epoch = -(-len(lengths) // batch_size)
        self._order: tuple[int, list[np.ndarray]] = (-1, [])

    def places(self, step: int, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
        """The examples of process `rank` of `world`, none where there are too few, and of the whole batch: a pure
        function of (seed, step)."""
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
    """The places of all examples once, the shortest first, in batches: for evaluation."""
    order = np.argsort(lengths, kind="stable")
    for i in range(0, len(order), batch_size):
        yield order[i : i + batch_size]
