"""Log-likelihood of a token stream under a neural language model.

A scoring protocol defines the context from which each token is predicted: recurrent state that is carried through the
stream, or a sliding window. Every token of the stream is scored. The boundary token precedes the first token.

Dimensions: B batch, T time, N tokens of a stream.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from retable.core.settings import PositiveInt
from retable.data.batches import LazyBatches, all_results, in_order, share
from retable.data.bucketed import on_device
from retable.data.streams import TokenBatch
from retable.objectives.base import LanguageModelling


class OneDirection(Protocol):
    """An objective that computes log-probabilities of labels, or one direction of a two-way objective."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the log-probabilities of `labels`, as `Likelihood.log_prob` does."""
        ...


class Scorer(Protocol):
    """A method that scores a stream in batches, which several processes can share."""

    protocol: str

    def batches(self, tokens: np.ndarray, boundary: int, rank: int, world: int) -> LazyBatches:
        """Return the batches for process `rank` of `world` processes."""
        ...

    def step(self, objective: OneDirection) -> Callable[[TokenBatch], np.ndarray]:
        """Return a function that maps a batch to the scores of its tokens, float64 (B, T).

        The function must be called on all batches of a process, in their order.
        """
        ...

    def joined(self, measured: Sequence[Sequence[np.ndarray]], n_tokens: int) -> np.ndarray:
        """Combine the results of all processes into the scores of the stream's tokens, (N,), in order."""
        ...


class _Scorer:
    def log_prob(self: Scorer, objective: OneDirection, tokens: np.ndarray, boundary: int) -> np.ndarray:
        """Return the log-probability of each token, float64 (N,), given the context that the protocol defines.

        Processes share the batches.
        """
        return self.joined(all_results(StreamLoss(self, tokens, boundary), objective), len(tokens))


class Carried(_Scorer):
    """Scores a stream in `rows` parallel parts; recurrent state is carried through each part.

    With rows=1, every token is scored given all tokens before it. The model reads `segment` tokens at a time. The value
    of `segment` changes the scores only if the model's memory is bounded. Each process scores some of the rows, because
    a segment needs the state after the previous segment of its row. With one row, the first process scores everything.

    Args:
        rows: number of parallel parts of the stream, each with a separate state.
    """

    def __init__(self, rows: PositiveInt, segment: PositiveInt = 256):
        self.rows, self.segment = rows, segment
        self.protocol = "carried" if rows == 1 else f"carried, {rows} rows"

    def batches(self, tokens: np.ndarray, boundary: int, rank: int = 0, world: int = 1) -> LazyBatches:
        row = self._row(len(tokens))
        padding = (0, row * self.rows - len(tokens))
        local_rows = np.array_split(np.arange(self.rows), world)[rank]
        inputs, labels = (
            torch.nn.functional.pad(ids, padding, value=boundary).view(self.rows, row)[local_rows]
            for ids in _shifted(tokens, boundary)
        )

        def piece(number: int) -> TokenBatch | None:
            span = slice(number * self.segment, (number + 1) * self.segment)
            return TokenBatch(inputs[:, span], labels[:, span], fresh=number == 0) if len(local_rows) else None

        return LazyBatches(-(-row // self.segment), piece)

    def step(self, objective: OneDirection) -> Callable[[TokenBatch], np.ndarray]:
        device, state = next(objective.parameters()).device, None

        @torch.inference_mode()
        def score(piece: TokenBatch) -> np.ndarray:
            nonlocal state
            input_ids, labels, *_ = on_device(device, piece)
            log_probs, state = objective.log_prob(input_ids, labels, state)
            return log_probs.double().cpu().numpy()

        return score

    def joined(self, measured: Sequence[Sequence[np.ndarray]], n_tokens: int) -> np.ndarray:
        rows = np.concatenate([np.concatenate(scores, axis=1) for scores in measured if scores[0] is not None])
        places = self._row(n_tokens) * np.arange(self.rows)[:, None] + np.arange(rows.shape[1])
        return rows[places < n_tokens]

    def _row(self, n_tokens: int) -> int:
        return -(-n_tokens // self.rows)


class SlidingWindow(_Scorer):
    """Scores a stream in windows of `length` tokens that move by `stride` tokens.

    Each token is scored in the window that contains the most context before this token. The default stride is half a
    window.

    Args:
        batch_size: number of windows per batch.

    Raises: ValueError: the stride is longer than the window.
    """

    def __init__(self, length: PositiveInt, stride: PositiveInt | None, batch_size: PositiveInt):
        stride = max(length // 2, 1) if stride is None else stride
        if not 0 < stride <= length:
            raise ValueError(f"stride={stride} must be between 1 and length={length}")
        self.length, self.stride, self.batch_size = length, stride, batch_size
        self.protocol = f"window {length}, stride {stride}"

    def batches(self, tokens: np.ndarray, boundary: int, rank: int = 0, world: int = 1) -> LazyBatches:
        windows = max(-(-(len(tokens) - self.length) // self.stride), 0) + 1
        padding = (0, (windows - 1) * self.stride + self.length - len(tokens))
        inputs, labels = (
            torch.nn.functional.pad(ids, padding, value=boundary).unfold(0, self.length, self.stride)
            for ids in _shifted(tokens, boundary)
        )

        def piece(start: int) -> TokenBatch:
            windows = slice(start, start + self.batch_size)
            return TokenBatch(inputs[windows], labels[windows], fresh=True)

        return share(range(0, windows, self.batch_size), piece, rank, world)

    def step(self, objective: OneDirection) -> Callable[[TokenBatch], np.ndarray]:
        device = next(objective.parameters()).device

        @torch.inference_mode()
        def score(piece: TokenBatch) -> np.ndarray:
            input_ids, labels, *_ = on_device(device, piece)
            return objective.log_prob(input_ids, labels)[0].double().cpu().numpy()

        return score

    def joined(self, measured: Sequence[Sequence[np.ndarray]], n_tokens: int) -> np.ndarray:
        scored = np.concatenate(in_order(measured))  # (windows, length)
        first, rest = scored[0], scored[1:, self.length - self.stride :]
        return np.concatenate([first, rest.flatten()])[:n_tokens]


def _shifted(tokens: np.ndarray, boundary: int) -> tuple[Tensor, Tensor]:
    ids = torch.from_numpy(np.concatenate([[boundary], tokens.astype(np.int64)]))
    return ids[:-1], ids[1:]


class StreamLoss:
    """Measures the mean nats per token of held-out text under `scorer`, during training.

    Args:
        tokens: ids, (N,); may be memory-mapped.
        boundary: id of the boundary token, which precedes the stream's first token.
    """

    def __init__(self, scorer: Scorer, tokens: np.ndarray, boundary: int):
        self._scorer, self._tokens, self._boundary = scorer, tokens, boundary

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return self._scorer.batches(self._tokens, self._boundary, rank, world)

    def step(self, objective: OneDirection) -> Callable[[TokenBatch], np.ndarray]:
        return self._scorer.step(objective)

    def compute(self, measured: Sequence[Sequence[np.ndarray]]) -> dict[str, float]:
        return {"loss": -float(self._scorer.joined(measured, len(self._tokens)).mean())}


class NeuralLM:
    """A `LanguageModel` for benchmarks: a trained objective with a scoring protocol.

    Args:
        boundary: id of the boundary token, which precedes a stream's first token.
    """

    def __init__(self, objective: LanguageModelling, scorer: Carried | SlidingWindow, boundary: int):
        self.protocol = scorer.protocol
        self.objective, self.scorer, self.boundary = objective, scorer, boundary

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        return self.scorer.log_prob(self.objective, tokens, self.boundary)
