"""What an objective predicts of examples of any kind."""

from typing import Any

import torch
from torch import Tensor

from retable.data.bucketed import Encoded, in_order_of_length, on_device
from retable.generation.packed import packed
from retable.objectives.base import Objective


@torch.inference_mode()
def predict(objective: Objective, encoded: Encoded, batch_size: int = 256) -> list[Any]:
    """What `objective.predict` says of each example, in their order; of a batch it gives a tensor or a list, a row an
    example."""
    objective = packed(objective)
    device = next(objective.parameters()).device
    predictions: list[Any] = [None] * len(encoded.lengths)
    for places, batch in in_order_of_length(encoded, batch_size):
        found = objective.predict(on_device(device, batch))
        rows = found.tolist() if isinstance(found, Tensor) else found
        for place, prediction in zip(places, rows, strict=True):
            predictions[place] = prediction
    return predictions
