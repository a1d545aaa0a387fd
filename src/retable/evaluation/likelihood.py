"""Log-likelihood of a token stream under a neural language model, with the context protocol named.

Every token of the stream is predicted and counted; before the first stands the boundary token. N tokens of a stream.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from retable.objectives.base import LanguageModelling


class OneDirection(Protocol):
    """What is asked of an objective, or of one direction of it."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """As Likelihood."""
        ...


class Carried:
    """Recurrent state carried across the whole stream, cut into `rows` parallel parts (1: the exact protocol).

    `segment` tokens are read at a time, which matters to nothing but models of a bounded memory.
    """

    def __init__(self, rows: int, segment: int = 256):
        self.rows, self.segment = rows, segment
        self.protocol = "carried" if rows == 1 else f"carried, {rows} rows"

    @torch.inference_mode()
    def log_prob(self, objective: OneDirection, tokens: np.ndarray, boundary: int) -> np.ndarray:
        """(N,) ids to the (N,) float64 log-probability of each after all before it (in its row)."""
        inputs, labels = _shifted(objective, tokens, boundary)
        row = -(-len(tokens) // self.rows)
        padding = (0, row * self.rows - len(tokens))
        inputs = torch.nn.functional.pad(inputs, padding, value=boundary).view(self.rows, row)
        labels = torch.nn.functional.pad(labels, padding, value=boundary).view(self.rows, row)
        state, parts = None, []
        for start in range(0, row, self.segment):
            span = slice(start, start + self.segment)
            log_probs, state = objective.log_prob(inputs[:, span], labels[:, span], state)
            parts.append(log_probs)
        return torch.cat(parts, dim=1).flatten()[: len(tokens)].double().cpu().numpy()


class SlidingWindow:
    """Windows of `length` tokens that move by `stride`; a token is scored in the window that shows it most context."""

    def __init__(self, length: int, stride: int, batch_size: int):
        if not 0 < stride <= length:
            raise ValueError(f"stride={stride} must be between 1 and length={length}")
        self.length, self.stride, self.batch_size = length, stride, batch_size
        self.protocol = f"window {length}, stride {stride}"

    @torch.inference_mode()
    def log_prob(self, objective: OneDirection, tokens: np.ndarray, boundary: int) -> np.ndarray:
        """(N,) ids to the (N,) float64 log-probability of each after the window's tokens before it."""
        inputs, labels = _shifted(objective, tokens, boundary)
        windows = max(-(-(len(tokens) - self.length) // self.stride), 0) + 1
        padding = (0, (windows - 1) * self.stride + self.length - len(tokens))
        inputs = torch.nn.functional.pad(inputs, padding, value=boundary).unfold(0, self.length, self.stride)
        labels = torch.nn.functional.pad(labels, padding, value=boundary).unfold(0, self.length, self.stride)
        parts = [
            objective.log_prob(inputs[i : i + self.batch_size], labels[i : i + self.batch_size])[0]
            for i in range(0, windows, self.batch_size)
        ]
        scored = torch.cat(parts)  # (windows, length)
        first, rest = scored[0], scored[1:, self.length - self.stride :]
        return torch.cat([first, rest.flatten()])[: len(tokens)].double().cpu().numpy()


def _shifted(objective: OneDirection, tokens: np.ndarray, boundary: int) -> tuple[Tensor, Tensor]:
    stream = np.concatenate([[boundary], tokens.astype(np.int64)])
    ids = torch.from_numpy(stream).to(next(objective.parameters()).device)
    return ids[:-1], ids[1:]


class NeuralLM:
    """A trained objective with the protocol that it is scored under: a language model to the benchmarks."""

    def __init__(self, objective: LanguageModelling, scorer: Carried | SlidingWindow, boundary: int):
        self.protocol = scorer.protocol
        self.objective, self._scorer, self._boundary = objective, scorer, boundary

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        return self._scorer.log_prob(self.objective, tokens, self._boundary)
