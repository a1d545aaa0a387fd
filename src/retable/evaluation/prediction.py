"""Labels predicted for whole examples."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from retable.data.examples import Inputs, batches_by_length


@torch.inference_mode()
def predict(objective: Any, inputs: Inputs, batch_size: int = 256) -> np.ndarray:
    """What the objective predicts of each example, (n,), in their order: int64 classes, or float32 scores."""
    device = next(objective.parameters()).device
    unknown = [0] * len(inputs.sequences)
    places, predictions = [], []
    for of_batch, batch in batches_by_length(inputs, unknown, batch_size):
        moved: dict[str, Any] = {name: t.to(device) for name, t in batch._asdict().items() if isinstance(t, Tensor)}
        places.append(of_batch)
        predictions.append(objective.predict(batch._replace(**moved)).cpu().numpy())
    return np.concatenate(predictions)[np.argsort(np.concatenate(places))]
