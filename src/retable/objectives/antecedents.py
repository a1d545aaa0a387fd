"""The antecedent objective: which of the spans before it, or none, a span refers to (Lee et al. 2017, "End-to-end
Neural Coreference Resolution", arXiv 1707.07045, sections 3 and 6).

N spans, K antecedents, M mentions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.data.coreference import CoreferenceBatch
from retable.errors import UsageError


class Antecedents(nn.Module):
    """A model that ranks the antecedents of spans, and a softmax over them and ε, none."""

    def __init__(self, model: Any):
        super().__init__()
        if model.direction != "spans":
            raise UsageError(
                f"{type(model).__name__} does not rank the antecedents of spans; take recipe=coreference/mention_ranker"
            )
        self.model = model

    def forward(self, batch: CoreferenceBatch) -> Any:
        """The model's `Ranking`."""
        return self.model(*batch[:3])

    def loss(self, batch: CoreferenceBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """The mean over documents of −Σ_i log Σ_{y ∈ Y(i) ∩ GOLD(i)} P(y), i the spans of a document."""
        spans, _, antecedents, scores = self(batch)
        likelihood = marginal_likelihood(scores, antecedents, clusters_of(spans, batch))
        loss = -likelihood.sum() / len(batch.documents.unique()) * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: CoreferenceBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The spans (N, 2), the document of each (N,), and the place among them of its best antecedent (N,), −1 for
        none."""
        spans, documents, antecedents, scores = self(batch)
        none = torch.full_like(antecedents[:, :1], -1)
        best = torch.cat([none, antecedents], dim=1).gather(1, scores.argmax(dim=1, keepdim=True))
        return spans, documents, best[:, 0]


def clusters_of(spans: Tensor, batch: CoreferenceBatch) -> Tensor:
    """The cluster (N,) of each of `spans` (N, 2), 0 of one that is no mention."""
    same = (spans[:, None] == batch.mentions).all(dim=2)  # (N, M)
    return F.pad(same * batch.clusters, (1, 0)).amax(dim=1)


def marginal_likelihood(scores: Tensor, antecedents: Tensor, clusters: Tensor) -> Tensor:
    """log Σ_y P(y) (N,) over the right antecedents y of each span: those of its cluster, or ε where there are none."""
    exist = scores[:, 1:] > -torch.inf  # (N, K)
    right = exist & (clusters[antecedents] == clusters[:, None]) & (clusters[:, None] > 0)
    right = torch.cat([~right.any(dim=1, keepdim=True), right], dim=1)  # (N, 1 + K)
    return scores.masked_fill(~right, -torch.inf).logsumexp(dim=1) - scores.logsumexp(dim=1)
