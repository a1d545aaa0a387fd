"""What an objective predicts of examples of any kind."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.batches import Pieces, in_order, mapped, share
from retable.data.bucketed import Encoded, on_device
from retable.data.buckets import by_length
from retable.generation.packed import packed
from retable.objectives.base import Objective

Piece = tuple[np.ndarray, Any]  # places of examples, and their batch


def predict(objective: Objective, encoded: Encoded, batch_size: int = 256) -> list[Any]:
    """What `objective.predict` says of each example, in their order; of a batch it gives a tensor or a list, a row an
    example. Processes share the batches."""
    predict_piece = predicting(objective)
    batches = list(by_length(encoded.lengths, batch_size))
    found = dict(chain(*mapped(lambda places: predict_piece((places, encoded.pad(places))), batches)))
    return [found[place] for place in range(len(encoded.lengths))]


def predicting(objective: Objective) -> Callable[[Piece], list[tuple[int, Any]]]:
    """What predicts the examples of one batch after the other, each with its place."""
    objective = packed(objective)
    device = next((weights.device for weights in objective.parameters()), torch.device("cpu"))

    @torch.inference_mode()
    def predict_piece(piece: Piece) -> list[tuple[int, Any]]:
        places, batch = piece
        found = objective.predict(on_device(device, batch))
        rows = found.tolist() if isinstance(found, Tensor) else found
        return list(zip(places.tolist(), rows, strict=True))

    return predict_piece


class Predictions:
    """Examples to a training: how good what the objective predicts of them is, by `score` of places and predictions."""

    def __init__(self, encoded: Encoded, batch_size: int, score: Callable[[list[int], list[Any]], dict[str, float]]):
        self._encoded, self._batch_size, self._score = encoded, batch_size, score

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        places = list(by_length(self._encoded.lengths, self._batch_size))
        return share(places, lambda some: (some, self._encoded.pad(some)), rank, world)

    def measuring(self, objective: Objective) -> Callable[[Piece], list[tuple[int, Any]]]:
        return predicting(objective)

    def total(self, measured: Sequence[Sequence[list[tuple[int, Any]]]]) -> dict[str, float]:
        found = dict(pair for piece in in_order(measured) for pair in piece)
        places = sorted(found)
        return self._score(places, [found[place] for place in places])
