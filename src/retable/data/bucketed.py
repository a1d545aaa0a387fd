"""Batches of examples with similar lengths, for any kind of example.

Shapes: n examples of a split. `places` are indices of examples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.buckets import Buckets, TokenBuckets, by_length


def mean_weight(batch: Any, own: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Set the loss weight of one process's share of a batch, for a loss that is a mean over examples.

    The average of all processes' weighted means is then the mean over the whole batch.

    Args:
        own: indices of this process's examples.
        places: indices of all examples of the batch.
        world: number of processes.
    """
    return batch._replace(weight=world * len(own) / len(places))


def count_weight(counts: np.ndarray, batch: Any, own: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Set the loss weight of one process's share of a batch, for a loss that is a mean over items, such as words.

    Args:
        counts: the number of items of each example, (n,).
    """
    return batch._replace(weight=float(world * (counts[own].sum() / counts[places].sum())))


def sum_weight(counts: np.ndarray, batch: Any, own: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Set the loss weight of one process's share of a batch, for a loss that is the mean over examples of their sums.

    Args:
        counts: the number of items of each example, (n,).
    """
    return batch._replace(weight=float(world * (counts[own].sum() / len(places))))


@dataclass(frozen=True)
class Encoded:
    """The examples of a split as model inputs."""

    lengths: np.ndarray  # (n,) the length of each example, in tokens; examples of similar length share a batch
    pad: Callable[[np.ndarray], Any]  # builds one batch, of weight 1, from the examples with the given indices
    weigh: Callable[[Any, np.ndarray, np.ndarray, int], Any] = mean_weight
    truncated: int = 0  # the number of examples that were truncated to fit the model
    trainable: np.ndarray | None = None  # indices of the examples to train on; if None, all examples are used


def at_once(texts: Sequence[Any]) -> Encoded:
    """Prepare texts for rules and for models trained without gradients; a batch is a list of unchanged texts."""
    return Encoded(np.array([len(text) for text in texts]), lambda places: [texts[place] for place in places])


class Bucketed:
    """Training batches of examples with similar lengths, grouped by `Buckets`.

    `batch(step)` is a pure function of (seed, step).

    Args:
        encoded: the examples as model inputs, with their lengths.
        batch_size: examples per batch, summed over all processes.
        seed: seed of the random orders of the examples.
        in_tokens: whether `batch_size` is the largest number of tokens per batch, including padding, instead of the
            number of examples.
    """

    def __init__(self, encoded: Encoded, batch_size: int, seed: int, in_tokens: bool = False):
        self._encoded = encoded
        self._trainable = np.arange(len(encoded.lengths)) if encoded.trainable is None else encoded.trainable
        lengths = encoded.lengths[self._trainable]
        self._buckets = (
            TokenBuckets(lengths, batch_size, seed, "batch_size") if in_tokens else Buckets(lengths, batch_size, seed)
        )
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return the examples of process number `rank` of `world`; the examples of all processes form the step's batch.

        If a batch has fewer examples than there are processes, each process without an example gets the batch's first
        example with weight 0.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        own, places = (self._trainable[chosen] for chosen in self._buckets.places(step, rank, world))
        return self._encoded.weigh(self._encoded.pad(own if len(own) else places[:1]), own, places, world)


def in_order_of_length(encoded: Encoded, batch_size: int) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield all examples once, the shortest first, for evaluation.

    Each item is a pair: the indices of the batch's examples, and the batch.

    Args:
        batch_size: examples per batch.
    """
    for places in by_length(encoded.lengths, batch_size):
        yield places, encoded.pad(places)


def on_device(device: torch.device, batch: Any) -> Any:
    """Move all tensors of a batch, or of nested batches, to `device`; the CPU does not wait for a copy to a GPU."""
    if isinstance(batch, Tensor):
        if device.type == "cuda" and batch.device.type == "cpu":
            return batch.contiguous().pin_memory().to(device, non_blocking=True)
        return batch.to(device)
    return type(batch)(*(on_device(device, part) for part in batch)) if isinstance(batch, tuple) else batch
