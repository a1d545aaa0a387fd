"""Multiple-choice examples as model inputs and batches; each row is one ending with its context.

Shapes: B batch, R rows (the endings of all examples of a batch), T time, n examples.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.bucketed import Encoded, count_weight, mean_weight
from retable.data.examples import ExampleBatch, Inputs, pad


class Choices(NamedTuple):
    """Encoded multiple-choice examples."""

    inputs: Inputs  # each row is one ending with its context; the rows of an example are consecutive
    n_endings: np.ndarray  # (n,) the number of endings of each example
    labels: Sequence[int]  # (n,) the index of the correct ending of each example

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens in each example's longest row, (n,)."""
        return np.maximum.reduceat(self.inputs.lengths, self.first_rows)

    @property
    def first_rows(self) -> np.ndarray:
        """Return the index of each example's first row, (n,)."""
        return np.cumsum(self.n_endings) - self.n_endings


class ChoiceBatch(NamedTuple):
    """A batch of multiple-choice examples."""

    rows: ExampleBatch  # R rows, grouped by example; the labels of the rows are all 0 and are not used
    n_endings: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64, the index of each example's correct ending
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all examples


def encoded(choices: Choices) -> Encoded:
    """Prepare multiple-choice examples for batching; an example is as long as its longest row."""
    return Encoded(choices.lengths, partial(pad_choices, choices), partial(_weigh, choices), choices.inputs.truncated)


def _weigh(choices: Choices, batch: ChoiceBatch, own: np.ndarray, places: np.ndarray, world: int) -> ChoiceBatch:
    """Set the batch's weight, for losses averaged over examples, and the rows' weight, for averages over rows."""
    rows = count_weight(choices.n_endings, batch.rows, own, places, world)
    return mean_weight(batch._replace(rows=rows), own, places, world)


def pad_choices(choices: Choices, places: np.ndarray) -> ChoiceBatch:
    """Return the examples with the indices `places` as one batch."""
    first, n_endings = choices.first_rows[places], choices.n_endings[places]
    rows = np.concatenate([np.arange(start, start + n) for start, n in zip(first, n_endings, strict=True)])
    no_labels = [0] * len(choices.inputs.sequences)
    labels = torch.tensor([choices.labels[place] for place in places])
    return ChoiceBatch(pad(choices.inputs, no_labels, rows), torch.from_numpy(n_endings), labels)
