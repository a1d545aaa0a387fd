"""Endings chosen for beginnings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from retable.data.choices import Choices, choices_by_length
from retable.evaluation.held_out import on_device


@torch.inference_mode()
def predict_choices(objective: Any, choices: Choices, batch_size: int = 64) -> np.ndarray:
    """The place of the ending that the objective scores highest, of each example, (n,) int64, in their order."""
    predictions = np.zeros(len(choices.labels), dtype=np.int64)
    device = next(objective.parameters()).device
    for places, batch in choices_by_length(choices, batch_size):
        predictions[places] = objective.predict(on_device(device, batch)).cpu().numpy()
    return predictions


def choice_accuracy(labels: Sequence[int], predictions: Sequence[int] | np.ndarray) -> float:
    """The share of examples whose right ending was chosen."""
    return float(np.mean(np.asarray(labels) == np.asarray(predictions)))
