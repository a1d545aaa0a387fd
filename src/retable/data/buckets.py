"""Group examples of similar lengths into batches, to limit padding."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from retable.core.errors import UsageError

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
        places = self.all_places(step)
        return places[rank::world], places

    def all_places(self, step: int) -> np.ndarray:
        """Return the example indices of the whole batch `step`."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        return self._order[1][index]

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._lengths))
        size = self._batch_size * POOL
        pools = [order[i : i + size] for i in range(0, len(order), size)]
        ordered = np.concatenate([pool[np.argsort(self._lengths[pool], kind="stable")] for pool in pools])
        batches = np.array_split(ordered, self.steps_per_epoch)
        return [batches[i] for i in generator.permutation(len(batches))]


class TokenBuckets(Buckets):
    """A division of example indices into batches of a limited number of tokens, including padding.

    Each epoch contains every example once. Batches contain examples of neighbouring lengths, and are in a new random
    order in each epoch; examples of equal length are shuffled, too.

    Args:
        lengths: lengths of the examples, (N,), in tokens.
        max_tokens: largest number of tokens per batch.
        seed: seed of the random orders.
        setting: name of the setting with the value `max_tokens`, for the error message.

    Raises: UsageError: an example is longer than `max_tokens`.
    """

    def __init__(self, lengths: np.ndarray, max_tokens: int, seed: int, setting: str):
        super().__init__(lengths, max_tokens, seed)
        if lengths.max() > max_tokens:
            raise UsageError(
                f"a sentence of {lengths.max()} tokens does not fit into a batch of {setting}={max_tokens}; "
                f"write {setting}={lengths.max()} or more"
            )
        # The batch sizes depend only on the sorted lengths, so they are the same in every epoch.
        self._sizes = list(pairwise(cut(np.sort(lengths), max_tokens)))
        self.steps_per_epoch = len(self._sizes)

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._lengths))  # shuffled: examples of equal length are in random order
        order = order[np.argsort(self._lengths[order], kind="stable")]
        return [order[slice(*self._sizes[i])] for i in generator.permutation(self.steps_per_epoch)]


def cut(lengths: np.ndarray, max_tokens: int) -> list[int]:
    """Cut sequences into batches of at most `max_tokens` tokens, including padding.

    The lengths of the sequences, `lengths`, must be in ascending order, and none may be larger than `max_tokens`.

    Returns: the index of each batch's first sequence, followed by the total number of sequences.
    """
    cuts = [0]
    for place, length in enumerate(lengths.tolist()):
        if (place + 1 - cuts[-1]) * length > max_tokens:
            cuts.append(place)
    return [*cuts, len(lengths)]


def by_length(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the indices of all examples once, the shortest first, in batches, for evaluation.

    Args:
        lengths: lengths of the examples, (N,).
    """
    order = np.argsort(lengths, kind="stable")
    for i in range(0, len(order), batch_size):
        yield order[i : i + batch_size]
