"""Beginnings with several endings as a model reads them, and their batches: each ending is a row, with its beginning.

B batch, R rows, the endings of all of a batch's examples, T time.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.buckets import Buckets, by_length
from retable.data.examples import ExampleBatch, Inputs, pad


class Choices(NamedTuple):
    inputs: Inputs  # every ending with its beginning, example after example
    n_endings: np.ndarray  # (n,): of each example
    labels: Sequence[int]  # the place of each one's right ending

    @property
    def lengths(self) -> np.ndarray:
        """(n,): of each example, the tokens of the longest ending with its beginning."""
        return np.maximum.reduceat(self.inputs.lengths, self.first_rows)

    @property
    def first_rows(self) -> np.ndarray:
        """(n,): where each example's endings begin."""
        return np.cumsum(self.n_endings) - self.n_endings


class ChoiceBatch(NamedTuple):
    rows: ExampleBatch  # R endings, example after example; they have no labels of their own
    n_endings: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64, the place of each example's right ending
    weight: float = 1.0  # of these examples' mean, so that the processes' average is the mean over all examples


class BucketedChoices:
    """Batches of examples alike in length, see `Buckets`; `batch(step)` is a pure function of (seed, step)."""

    def __init__(self, choices: Choices, batch_size: int, seed: int):
        self._choices, self._buckets = choices, Buckets(choices.lengths, batch_size, seed)
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> ChoiceBatch:
        """The examples of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        mine, places = self._buckets.places(step, rank, world)
        batch, n_rows = pad_choices(self._choices, mine), self._choices.n_endings[places].sum()
        rows = batch.rows._replace(weight=float(world * len(batch.rows.lengths) / n_rows))
        return batch._replace(rows=rows, weight=world * len(mine) / len(places))


def choices_by_length(choices: Choices, batch_size: int) -> Iterator[tuple[np.ndarray, ChoiceBatch]]:
    """All examples once, the shortest first, each batch with the places of its examples: for evaluation."""
    for places in by_length(choices.lengths, batch_size):
        yield places, pad_choices(choices, places)


def pad_choices(choices: Choices, places: np.ndarray) -> ChoiceBatch:
    """The examples at `places` as one batch."""
    first, n_endings = choices.first_rows[places], choices.n_endings[places]
    rows = np.concatenate([np.arange(start, start + n) for start, n in zip(first, n_endings, strict=True)])
    none = [0] * len(choices.inputs.sequences)
    labels = torch.tensor([choices.labels[place] for place in places])
    return ChoiceBatch(pad(choices.inputs, none, rows), torch.from_numpy(n_endings), labels)
