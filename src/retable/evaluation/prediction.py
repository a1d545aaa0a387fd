"""Batched predictions of any objective for any kind of examples."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.batches import LazyBatches, in_order, mapped, share
from retable.data.bucketed import Encoded, on_device
from retable.data.buckets import by_length
from retable.generation.packed import prepack
from retable.objectives.base import Objective

Piece = tuple[np.ndarray, Any]  # the indices of the examples in a batch, and the batch itself


def predict(objective: Objective, encoded: Encoded, batch_size: int = 256) -> list[Any]:
    """Return the prediction of `objective.predict` for each example, in order.

    `objective.predict` returns a tensor or a list with one row per example. Processes share the batches.
    """
    predict_piece = predicting(objective)
    batches = list(by_length(encoded.lengths, batch_size))
    rows = dict(chain(*mapped(lambda places: predict_piece((places, encoded.pad(places))), batches)))
    return [rows[place] for place in range(len(encoded.lengths))]


def predicting(objective: Objective) -> Callable[[Piece], list[tuple[int, Any]]]:
    """Return a function that maps a batch to one pair (index, prediction) per example."""
    objective = prepack(objective)
    device = next((weights.device for weights in objective.parameters()), torch.device("cpu"))

    @torch.inference_mode()
    def predict_piece(piece: Piece) -> list[tuple[int, Any]]:
        places, batch = piece
        predictions = objective.predict(on_device(device, batch))
        rows = predictions.tolist() if isinstance(predictions, Tensor) else predictions
        return list(zip(places.tolist(), rows, strict=True))

    return predict_piece


class Predictions:
    """Scores an objective's predictions for a fixed set of examples, during training.

    The function `score` receives the indices of the examples and the examples' predictions, and returns metrics.
    """

    def __init__(self, encoded: Encoded, batch_size: int, score: Callable[[list[int], list[Any]], dict[str, float]]):
        self._encoded, self._batch_size, self._score = encoded, batch_size, score

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        places = list(by_length(self._encoded.lengths, self._batch_size))
        return share(places, lambda some: (some, self._encoded.pad(some)), rank, world)

    def step(self, objective: Objective) -> Callable[[Piece], list[tuple[int, Any]]]:
        return predicting(objective)

    def compute(self, measured: Sequence[Sequence[list[tuple[int, Any]]]]) -> dict[str, float]:
        predictions = dict(pair for piece in in_order(measured) for pair in piece)
        places = sorted(predictions)
        return self._score(places, [predictions[place] for place in places])
