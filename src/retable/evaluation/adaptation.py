"""The interface of methods that adapt a trained language model to the text that it reads.

Dynamic evaluation and the neural cache implement `Adaptation`.

Dimensions: B batch, T time, N tokens of a stream.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isnan
from typing import Any, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.systems import AdaptedSystem
from retable.data.streams import TokenBatch
from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow


class Fitted(NamedTuple):
    """The settings that were tried when an adaptation was fitted, each with its loss.

    Attributes:
        tried: one mapping per combination of settings. Each mapping contains the settings' values by name. Its entry
            `loss` is the mean nats per validation token.
        measured: other arrays that the adaptation needs, such as statistics of gradients, by name.
    """

    tried: Sequence[Mapping[str, float]]
    measured: Mapping[str, np.ndarray]

    @property
    def best(self) -> Mapping[str, float]:
        """Return the settings with the lowest loss, or the first of tied settings. A loss of NaN counts as infinite."""
        return min(self.tried, key=lambda each: inf if isnan(each["loss"]) else each["loss"])


class Adaptation(Protocol):
    """A method that adapts a trained model to the text that it reads.

    Attributes:
        splits: names of the splits whose text `fit` needs.
    """

    splits: Sequence[str]

    def fit(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> Fitted:
        """Find the best settings for `model`.

        Args:
            texts: maps the name of each split in `splits` to its token ids, (N,).
        """
        ...

    def adapted(self, model: NeuralLM, fitted: Mapping[str, Tensor]) -> AdaptedSystem:
        """Return a system that applies the adaptation to `model` with the fitted settings.

        Args:
            fitted: the values of the best settings and the measured arrays, by name.
        """
        ...


class Step(NamedTuple):
    batch: TokenBatch  # One row of tokens, (1, T).
    scored: slice  # The positions to score: the positions that no earlier step has scored.


def steps(model: NeuralLM, tokens: np.ndarray, segment: int) -> Iterator[Step]:
    """Yield a token stream piece by piece, in order, with the positions to score in each piece.

    A piece has `segment` tokens if the model carries recurrent state. If the model's scorer reads a text in windows, a
    piece is one window.

    Args:
        tokens: ids of the stream, (N,).
    Raises: UsageError: the model's scorer reads several rows of the stream in parallel.
    """
    scorer, known = model.scorer, 0
    if isinstance(scorer, SlidingWindow):
        scorer, known = SlidingWindow(scorer.length, scorer.stride, batch_size=1), scorer.length - scorer.stride
    elif scorer.rows == 1:
        scorer = Carried(rows=1, segment=segment)
    else:
        raise UsageError(
            f"scorer.rows={scorer.rows} scores parts of a text in parallel, not in order; use a cell with scorer.rows=1"
        )
    left = len(tokens)
    for number, batch in enumerate(scorer.batches(tokens, model.boundary, rank=0, world=1)):
        first = known if number else 0
        last = min(batch.labels.shape[1], first + left)  # the last window may extend beyond the end of the text
        yield Step(batch, slice(first, last))
        left -= last - first


def detached(state: Any) -> Any:
    """Detach a model's state (nested tuples of tensors) from the autograd graph."""
    if isinstance(state, tuple):
        return tuple(map(detached, state))
    return state.detach() if isinstance(state, Tensor) else state
