"""Batches of labelled sentences, alike in length, padded no further than the longest of the batch.

B batch, T time.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.errors import UsageError


class ExampleBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    lengths: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64
    weight: float = 1.0  # of these examples' mean, so that the processes' average is the mean over all examples


class BucketedExamples:
    """Every epoch all examples in a new order; neighbours in a pool of 50 batches are sorted by length.

    `batch(step)` is a pure function of (seed, step).
    """

    pool = 50

    def __init__(self, sequences: Sequence[Sequence[int]], labels: Sequence[int], batch_size: int, seed: int):
        self._sequences, self._labels, self._batch_size, self._seed = sequences, labels, batch_size, seed
        self._lengths = np.array([len(sequence) for sequence in sequences])
        self.steps_per_epoch = -(-len(sequences) // batch_size)
        self._order: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(self, step: int, rank: int = 0, world: int = 1) -> ExampleBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        places = self._order[1][index]
        if world > len(places):
            raise UsageError(
                f"a batch of {len(places)} examples can't be shared by {world} processes; raise batch_size"
            )
        mine = places[rank::world]
        return pad(self._sequences, self._labels, mine)._replace(weight=world * len(mine) / len(places))

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._sequences))
        size = self._batch_size * self.pool
        pools = [order[i : i + size] for i in range(0, len(order), size)]
        ordered = np.concatenate([p[np.argsort(self._lengths[p], kind="stable")] for p in pools])
        batches = np.array_split(ordered, self.steps_per_epoch)  # of one size, but for one example
        return [batches[i] for i in generator.permutation(len(batches))]


def batches_by_length(
    sequences: Sequence[Sequence[int]], labels: Sequence[int], batch_size: int
) -> Iterator[tuple[np.ndarray, ExampleBatch]]:
    """All examples once, the shortest first, each batch with the places of its examples: for evaluation."""
    order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
    for i in range(0, len(order), batch_size):
        places = order[i : i + batch_size]
        yield places, pad(sequences, labels, places)


def pad(sequences: Sequence[Sequence[int]], labels: Sequence[int], places: np.ndarray) -> ExampleBatch:
    """The examples at `places` as one batch."""
    lengths = [len(sequences[place]) for place in places]
    input_ids = np.zeros((len(places), max(lengths, default=0)), dtype=np.int64)
    for row, place in zip(input_ids, places, strict=True):
        row[: len(sequences[place])] = sequences[place]
    chosen = [labels[place] for place in places]
    return ExampleBatch(torch.from_numpy(input_ids), torch.tensor(lengths), torch.tensor(chosen))
