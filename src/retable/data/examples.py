"""Batches of labelled texts of similar lengths, padded to the longest text of the batch.

Shapes: B batch, T time, U time of the second sequence, n examples.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.bucketed import Encoded


class Inputs(NamedTuple):
    """Encoded texts of a split, laid out by a function of `retable.data.templates`."""

    sequences: Sequence[Sequence[int]]
    others: Sequence[Sequence[int]] | None = None  # second sequences, which the model encodes separately
    segments: Sequence[int] | None = None  # the index in each sequence where its second segment begins
    truncated: int = 0  # the number of examples that were truncated to fit the model

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each example, summed over its sequences, (n,)."""
        lengths = np.array([len(sequence) for sequence in self.sequences])
        return lengths if self.others is None else lengths + [len(sequence) for sequence in self.others]


class ExampleBatch(NamedTuple):
    """A batch of labelled texts."""

    input_ids: Tensor  # (B, T) int64, padded with 0
    lengths: Tensor  # (B,) int64
    labels: Tensor  # (B,) class ids, int64; or scores, float32
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all examples
    segments: Tensor | None = None  # (B, T) int64, 0 in the first segment, 1 from the start of the second segment
    other_ids: Tensor | None = None  # (B, U) int64
    other_lengths: Tensor | None = None  # (B,) int64


def encoded(inputs: Inputs, labels: Sequence[float]) -> Encoded:
    """Prepare texts with their labels for batching."""
    return Encoded(inputs.lengths, partial(pad, inputs, labels), truncated=inputs.truncated)


def pad(inputs: Inputs, labels: Sequence[float], places: np.ndarray) -> ExampleBatch:
    """Return the examples with the indices `places` as one batch."""
    input_ids, lengths = _padded(inputs.sequences, places)
    batch = ExampleBatch(input_ids, lengths, torch.tensor([labels[place] for place in places]))
    if inputs.segments is not None:
        begins = torch.tensor([inputs.segments[place] for place in places])
        batch = batch._replace(segments=(torch.arange(input_ids.shape[1]) >= begins[:, None]).long())
    if inputs.others is not None:
        other_ids, other_lengths = _padded(inputs.others, places)
        batch = batch._replace(other_ids=other_ids, other_lengths=other_lengths)
    return batch


def _padded(sequences: Sequence[Sequence[int]], places: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return the ids, (B, T), and lengths, (B,), of the sequences with indices `places`."""
    lengths = [len(sequences[place]) for place in places]
    input_ids = np.zeros((len(places), max(lengths, default=0)), dtype=np.int64)
    for row, place in zip(input_ids, places, strict=True):
        row[: len(sequences[place])] = sequences[place]
    return torch.from_numpy(input_ids), torch.tensor(lengths)
