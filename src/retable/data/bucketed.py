"""Examples of any kind as a model reads them, in batches alike in length."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.buckets import Buckets, by_length


def weigh_alike(batch: Any, mine: np.ndarray, places: np.ndarray, world: int) -> Any:
    """The batch of the examples at `mine`, which are the share of one of `world` processes of those at `places`, with
    such a `weight` that the average of the processes' means over their examples is the mean over all."""
    return batch._replace(weight=world * len(mine) / len(places))


def weigh_by(counts: np.ndarray, batch: Any, mine: np.ndarray, places: np.ndarray, world: int) -> Any:
    """Likewise, where a batch's mean is over things of which each example has so many (n,)."""
    return batch._replace(weight=float(world * (counts[mine].sum() / counts[places].sum())))


@dataclass(frozen=True)
class Encoded:
    """The examples of a split as a model reads them; n of them."""

    lengths: np.ndarray  # (n,): what they are sorted by, their tokens
    pad: Callable[[np.ndarray], Any]  # the examples at some places as one batch, whose weight is 1
    weigh: Callable[[Any, np.ndarray, np.ndarray, int], Any] = weigh_alike
    shortened: int = 0  # how many did not fit whole into the model
    taught: np.ndarray | None = None  # the places of those that can be trained on; None: of all


class Bucketed:
    """Training batches of examples alike in length, see `Buckets`; `batch(step)` is a pure function of (seed, step)."""

    def __init__(self, encoded: Encoded, batch_size: int, seed: int):
        self._encoded = encoded
        self._taught = np.arange(len(encoded.lengths)) if encoded.taught is None else encoded.taught
        self._buckets = Buckets(encoded.lengths[self._taught], batch_size, seed)
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """The examples of process `rank` of `world`; the processes' batches are the one-process batch, split. Where
        there is none left for a process, it has the first one, with a weight of 0."""
        mine, places = (self._taught[chosen] for chosen in self._buckets.places(step, rank, world))
        return self._encoded.weigh(self._encoded.pad(mine if len(mine) else places[:1]), mine, places, world)


def in_order_of_length(encoded: Encoded, batch_size: int) -> Iterator[tuple[np.ndarray, Any]]:
    """All examples once, the shortest first, each batch with the places of its examples: for evaluation."""
    for places in by_length(encoded.lengths, batch_size):
        yield places, encoded.pad(places)


def on_device(device: torch.device, batch: Any) -> Any:
    """A batch, or a batch of batches, whose tensors are on `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    return type(batch)(*(on_device(device, part) for part in batch)) if isinstance(batch, tuple) else batch
