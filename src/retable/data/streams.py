"""Batches from a token stream; a batch is a pure function of (seed, step), so a resumed run repeats the same batches.

Shapes: B batch (rows summed over all processes), T time.
"""

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Seed, Share

DRAWN = 1000  # number of batches per random generator; one per batch costs more time than a small model's forward pass


class TokenBatch(NamedTuple):
    """A batch for a left-to-right language model."""

    input_ids: Tensor  # (B, T) int64
    labels: Tensor  # (B, T) int64, the next token after each input token
    fresh: bool  # whether recurrent state is reset before this batch
    scale: float = 1.0  # factor by which the learning rate is multiplied for this batch
    before: Tensor | None = None  # initial state of a fixed-window model, (1, B, N): the N ids before the first input

    def state(self, carried: Any) -> Any:
        """Return the recurrent state from which the batch starts.

        `carried` is the state after the previous batch.
        """
        return self.before if self.fresh else carried


class OppositeBatch(NamedTuple):
    """A batch for two language models: one reads left to right, the other right to left."""

    forward: TokenBatch
    backward: TokenBatch  # the text in reverse order: each label is the token before its input in the original text


class CarriedStreams:
    """A token stream as `batch_size` parallel rows; a batch is the next `length` tokens of each row.

    Recurrent state is carried from batch to batch, for truncated back-propagation through time (Zaremba et al. 2014).
    Tokens at the end of a row that do not fill a batch are dropped. The recurrent state is reset at the start of each
    epoch.

    Args:
        tokens: ids, (N,), which may be memory-mapped.
        batch_size, length: number of rows per batch, B, and number of tokens per row, T.
        seed: unused, because the batches follow the order of the stream.

    Raises: UsageError: the stream is too short for a batch.
    """

    def __init__(self, tokens: np.ndarray, batch_size: PositiveInt, length: PositiveInt, seed: Seed = 0):
        row = len(tokens) // batch_size
        self.steps_per_epoch = (row - 1) // length
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(tokens)} tokens are too few for a batch of {batch_size} rows of {length}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * length
        self._rows = tokens[: batch_size * row].reshape(batch_size, row)
        self._length = length

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        start = step % self.steps_per_epoch * self._length
        share = share_of_rows(len(self._rows), rank, world)
        window = _tensor(self._rows[share, start : start + self._length + 1])
        return TokenBatch(window[:, :-1], window[:, 1:], fresh=start == 0)


class OppositeStreams:
    """Batches for ELMo (Peters et al. 2018): `CarriedStreams` over the token stream and over the reversed stream.

    `tokens_per_step` counts each token once, although it is read in both directions.

    Args:
        tokens: ids, (N,), which may be memory-mapped.
        batch_size, length: number of rows per batch, B, and number of tokens per row, T.

    Raises: UsageError: the stream is too short for a batch.
    """

    def __init__(self, tokens: np.ndarray, batch_size: PositiveInt, length: PositiveInt, seed: Seed = 0):
        self._forward = CarriedStreams(tokens, batch_size, length, seed)
        self._backward = CarriedStreams(tokens[::-1], batch_size, length, seed)  # a view, not a copy
        self.steps_per_epoch = self._forward.steps_per_epoch
        self.tokens_per_step = self._forward.tokens_per_step

    def batch(self, step: int, rank: int = 0, world: int = 1) -> OppositeBatch:
        """Return the rows of process number `rank` of `world`, as CarriedStreams does.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        return OppositeBatch(self._forward.batch(step, rank, world), self._backward.batch(step, rank, world))


class JitteredStreams:
    """CarriedStreams in which each batch has a random length (Merity, Keskar and Socher 2018, section 4.1).

    For each batch, a mean length is drawn: `length` with probability `share`, otherwise half of `length`. The length of
    the batch is then drawn from a normal distribution with this mean and the standard deviation `deviation`; the
    minimum is 5 tokens. The learning rate of a batch is multiplied by (length of the batch) / `length`.

    Args:
        tokens: ids, (N,), which may be memory-mapped.
        batch_size: number of rows per batch, B.
        seed: seed of the random lengths.

    Raises: UsageError: the stream is too short for a batch.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        batch_size: PositiveInt,
        length: PositiveInt,
        seed: Seed,
        share: Share = 0.95,
        deviation: NonNegative = 5.0,
    ):
        row = len(tokens) // batch_size
        mean = length * (share + (1 - share) / 2)
        self.steps_per_epoch = round((row - 1) / mean)
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(tokens)} tokens are too few for a batch of {batch_size} rows of {length}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * (row - 1) / self.steps_per_epoch
        self._rows = tokens[: batch_size * row].reshape(batch_size, row)
        self._length, self._share_of_long, self._deviation, self._seed = length, share, deviation, seed
        self._epochs = [self._cuts(0)]  # for each epoch: the positions in a row where batches start, and the row's end
        self._first_steps = [0]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        """Return the rows of process number `rank` of `world`, as CarriedStreams does.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        while step >= self._first_steps[-1] + len(self._epochs[-1]) - 1:
            self._first_steps.append(self._first_steps[-1] + len(self._epochs[-1]) - 1)
            self._epochs.append(self._cuts(len(self._epochs)))
        epoch = bisect_right(self._first_steps, step) - 1
        place = step - self._first_steps[epoch]
        start, stop = self._epochs[epoch][place : place + 2]
        share = share_of_rows(len(self._rows), rank, world)
        window = _tensor(self._rows[share, start : stop + 1])
        return TokenBatch(window[:, :-1], window[:, 1:], fresh=start == 0, scale=(stop - start) / self._length)

    def _cuts(self, epoch: int) -> list[int]:
        generator, end = np.random.default_rng((self._seed, epoch)), self._rows.shape[1] - 1
        cuts = [0]
        while cuts[-1] < end:
            base = self._length if generator.random() < self._share_of_long else self._length / 2
            cuts.append(min(cuts[-1] + max(round(generator.normal(base, self._deviation)), 5), end))
        return cuts


class ShuffledWindows:
    """Adjacent windows of `length` tokens; each epoch starts at a new random offset of the stream and has a new order.

    Args:
        tokens: ids, (N,), which may be memory-mapped.
        batch_size, length: number of rows per batch, B, and number of tokens per row, T.
        seed: seed of the random offsets and orders.

    Raises: UsageError: the stream is too short for a batch.
    """

    def __init__(self, tokens: np.ndarray, batch_size: PositiveInt, length: PositiveInt, seed: Seed):
        self._windows = (len(tokens) - 1) // length - 1
        self.steps_per_epoch = self._windows // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(tokens)} tokens are too few for a batch of {batch_size} windows of {length}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * length
        self._tokens, self._batch_size, self._length, self._seed = tokens, batch_size, length, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            generator = np.random.default_rng((self._seed, epoch))
            offset = generator.integers(self._length)
            self._order = epoch, offset + self._length * generator.permutation(self._windows)
        starts = self._order[1][index * self._batch_size :][share_of_rows(self._batch_size, rank, world)]
        window = _tensor(self._tokens[starts[:, None] + np.arange(self._length + 1)])
        return TokenBatch(window[:, :-1], window[:, 1:], fresh=True)


class SampledWindows:
    """Random tokens of the stream, drawn with replacement, each with the `context` tokens before it.

    Before the first token of the stream, the context is filled with `boundary`.
    """

    def __init__(self, tokens: np.ndarray, boundary: int, batch_size: PositiveInt, context: PositiveInt, seed: Seed):
        self.steps_per_epoch = max(len(tokens) // batch_size, 1)
        self.tokens_per_step = batch_size
        padded = np.concatenate([np.full(context, boundary, np.int64), tokens])
        self._windows = np.lib.stride_tricks.sliding_window_view(padded, context + 1)
        self._batch_size, self._seed = batch_size, seed
        self._drawn: tuple[int, np.ndarray] = (-1, np.empty(0))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TokenBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch."""
        draw, number = divmod(step, DRAWN)
        if self._drawn[0] != draw:
            generator = np.random.default_rng((self._seed, draw))
            self._drawn = draw, generator.integers(len(self._windows), size=(DRAWN, self._batch_size))
        places = self._drawn[1][number][share_of_rows(self._batch_size, rank, world)]
        window = torch.from_numpy(self._windows[places])
        return TokenBatch(window[:, -2:-1], window[:, -1:], fresh=True, before=window[None, :, :-2])


def share_of_rows(size: int, rank: int, world: int) -> slice:
    """Return the rows of process number `rank` of `world` in a batch of `size` rows.

    Raises: UsageError: `size` is not a multiple of `world`.
    """
    if size % world:
        raise UsageError(
            f"a batch of {size} cannot be shared evenly by {world} processes; write a batch size that is a multiple of "
            f"{world}"
        )
    return slice(rank * size // world, (rank + 1) * size // world)


def _tensor(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64))
