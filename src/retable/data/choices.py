"""Beginnings with several endings as a model reads them, and their batches: each ending is a row, with its beginning.

B batch, R rows, the endings of all of a batch's examples, T time.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.bucketed import Encoded, weigh_alike, weigh_by
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


def encoded(choices: Choices) -> Encoded:
    """Examples, as long as the longest of their endings."""
    return Encoded(choices.lengths, partial(pad_choices, choices), partial(_weigh, choices), choices.inputs.shortened)


def _weigh(choices: Choices, batch: ChoiceBatch, mine: np.ndarray, places: np.ndarray, world: int) -> ChoiceBatch:
    """For means over examples, and for those over rows."""
    rows = weigh_by(choices.n_endings, batch.rows, mine, places, world)
    return weigh_alike(batch._replace(rows=rows), mine, places, world)


def pad_choices(choices: Choices, places: np.ndarray) -> ChoiceBatch:
    """The examples at `places` as one batch."""
    first, n_endings = choices.first_rows[places], choices.n_endings[places]
    rows = np.concatenate([np.arange(start, start + n) for start, n in zip(first, n_endings, strict=True)])
    none = [0] * len(choices.inputs.sequences)
    labels = torch.tensor([choices.labels[place] for place in places])
    return ChoiceBatch(pad(choices.inputs, none, rows), torch.from_numpy(n_endings), labels)
