"""The classification objective: one label for a whole sequence.

B batch, T time, D d_model, L labels.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.examples import ExampleBatch


class Classification(nn.Module):
    """A backbone, its summary of the sequence, and a linear layer over the labels.

    An encoder that reads both ways is summed up by the maximum over time (Conneau et al. 2017); a left-to-right
    model by its last position, which alone has read everything (Radford et al. 2018, section 3.2); a model without
    direction, such as a bag of words, gives one vector a sequence.
    """

    def __init__(self, model: Any, n_labels: int, dropout: float):
        super().__init__()
        self.model = model
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(model.d_model, n_labels)
        self.head.apply(model.initialise)

    def forward(self, batch: ExampleBatch) -> Tensor:
        """The (B, L) logits."""
        if self.model.direction == "both":
            hidden = self.model(batch.input_ids, batch.lengths)
            padding = torch.arange(hidden.shape[1], device=hidden.device) >= batch.lengths[:, None]
            summary = hidden.masked_fill(padding[:, :, None], float("-inf")).amax(dim=1)
        elif self.model.direction == "none":
            summary = self.model(batch.input_ids, batch.lengths)
        else:
            hidden, _ = self.model(batch.input_ids)
            summary = hidden[torch.arange(len(hidden), device=hidden.device), batch.lengths - 1]
        return self.head(self.dropout(summary))

    def loss(self, batch: ExampleBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean cross-entropy of a batch in nats, and its metrics."""
        loss = F.cross_entropy(self(batch).float(), batch.labels)
        return loss, {"loss": loss.detach()}, None
