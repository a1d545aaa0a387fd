"""Labels predicted for whole sequences."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from retable.data.examples import batches_by_length


@torch.inference_mode()
def predict(objective: nn.Module, sequences: Sequence[Sequence[int]], batch_size: int = 256) -> np.ndarray:
    """The most probable label of each sequence, (n,) int64, in their order."""
    predictions = np.zeros(len(sequences), dtype=np.int64)
    device = next(objective.parameters()).device
    for places, batch in batches_by_length(sequences, [0] * len(sequences), batch_size):
        on_device = batch._replace(input_ids=batch.input_ids.to(device), lengths=batch.lengths.to(device))
        predictions[places] = objective(on_device).argmax(dim=1).cpu().numpy()
    return predictions
