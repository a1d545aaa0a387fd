"""Trained language models that go on learning while they read: how to learn is fitted to each, and in which steps it
reads.

B batch, T time, N tokens of a stream.
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
    """What an adaptation has found for a model.

    Attributes:
        tried: of each setting its values by name, and with them as `loss` the mean nats of a validation token.
        measured: what it needs beside a setting, by name.
    """

    tried: Sequence[Mapping[str, float]]
    measured: Mapping[str, np.ndarray]

    @property
    def best(self) -> Mapping[str, float]:
        """The setting of the least loss, of several the first."""
        return min(self.tried, key=lambda each: inf if isnan(each["loss"]) else each["loss"])


class Adaptation(Protocol):
    """A way to go on learning. `splits` are the texts that it is fitted to."""

    splits: Sequence[str]

    def fit(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> Fitted:
        """What is the best for `model`, by the tokens (N,) of each of `splits`."""
        ...

    def adapted(self, model: NeuralLM, found: Mapping[str, Tensor]) -> AdaptedSystem:
        """`model` with what `fit` found for it: the best setting's values, and what was measured."""
        ...


class Step(NamedTuple):
    batch: TokenBatch  # of one row, (1, T)
    scored: slice  # of T: what no step before has scored


def steps(model: NeuralLM, tokens: np.ndarray, segment: int) -> Iterator[Step]:
    """The stream (N,) as `model` is scored on it, in order: where state is carried, `segment` tokens at a time, else
    window by window. UsageError for a model that reads several parts of the stream at once."""
    scorer, known = model.scorer, 0
    if isinstance(scorer, SlidingWindow):
        scorer, known = SlidingWindow(scorer.length, scorer.stride, batch_size=1), scorer.length - scorer.stride
    elif scorer.rows == 1:
        scorer = Carried(rows=1, segment=segment)
    else:
        raise UsageError(
            f"a text in {scorer.rows} rows is not read in order; take a cell that was trained with scorer.rows=1"
        )
    left = len(tokens)
    for number, batch in enumerate(scorer.pieces(tokens, model.boundary, rank=0, world=1)):
        first = known if number else 0
        last = min(batch.labels.shape[1], first + left)  # the last window may be longer than the text
        yield Step(batch, slice(first, last))
        left -= last - first


def detached(state: Any) -> Any:
    """A model's state, nested tuples of tensors, without what led to it."""
    if isinstance(state, tuple):
        return tuple(map(detached, state))
    return state.detach() if isinstance(state, Tensor) else state
