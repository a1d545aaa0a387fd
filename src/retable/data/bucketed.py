"""Batches of examples of any kind that have similar lengths.

n examples in a split; `places` are indices of examples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.buckets import Buckets, by_length


def mean_weight(batch: Any, own: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Set the `weight` of a batch of the examples `own`, a process's share of the examples `places`.

    The weighted mean over examples, averaged over `world` processes, is then the mean over all `places`.
    """
    return batch._replace(weight=world * len(own) / len(places))


def count_weight(counts: np.ndarray, batch: Any, own: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Set the `weight` as `mean_weight` does, for a mean over items of which example i has `counts[i]`, (n,)."""
    return batch._replace(weight=float(world * (counts[own].sum() / counts[places].sum())))


@dataclass(frozen=True)
class Encoded:
    """The examples of a split as model inputs."""

    lengths: np.ndarray  # (n,) the length of each example, in tokens; batches are sorted by it
    pad: Callable[[np.ndarray], Any]  # returns the examples at some places as one batch of weight 1
    weigh: Callable[[Any, np.ndarray, np.ndarray, int], Any] = mean_weight
    truncated: int = 0  # the number of examples that were truncated to fit the model
    trainable: np.ndarray | None = None  # the places of the examples to train on; None: all


def at_once(texts: Sequence[Any]) -> Encoded:
    """Prepare texts that a rule or an estimated model reads unchanged; a batch is a list of them."""
    return Encoded(np.array([len(text) for text in texts]), lambda places: [texts[place] for place in places])


class Bucketed:
    """Training batches of examples of similar lengths, see `Buckets`.

    `batch(step)` is a pure function of (seed, step).

    Args:
        encoded: the examples as model inputs, with their lengths.
        batch_size: examples per batch, of all processes together.
        seed: seed of the orders.
    """

    def __init__(self, encoded: Encoded, batch_size: int, seed: int):
        self._encoded = encoded
        self._trainable = np.arange(len(encoded.lengths)) if encoded.trainable is None else encoded.trainable
        self._buckets = Buckets(encoded.lengths[self._trainable], batch_size, seed)
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return the examples of process `rank` of `world`; together the processes' batches are the one-process batch.

        A process without examples gets the first example of the batch with weight 0.

        Args:
            step: number of the batch, from 0; epochs follow one another.
        """
        own, places = (self._trainable[chosen] for chosen in self._buckets.places(step, rank, world))
        return self._encoded.weigh(self._encoded.pad(own if len(own) else places[:1]), own, places, world)


def in_order_of_length(encoded: Encoded, batch_size: int) -> Iterator[tuple[np.ndarray, Any]]:
    """Yield all examples once, the shortest first, as (places, batch), for evaluation.

    Args:
        batch_size: examples per batch.
    """
    for places in by_length(encoded.lengths, batch_size):
        yield places, encoded.pad(places)


def on_device(device: torch.device, batch: Any) -> Any:
    """Move all tensors of a batch, or of nested batches, to `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    return type(batch)(*(on_device(device, part) for part in batch)) if isinstance(batch, tuple) else batch
