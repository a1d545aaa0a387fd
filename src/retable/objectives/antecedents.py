"""The antecedent objective: which of the spans before it, or none, a span refers to (Lee et al. 2017, "End-to-end
Neural Coreference Resolution", arXiv 1707.07045, sections 3 and 6).

N spans, K antecedents, M mentions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.core.errors import UsageError
from retable.data.coreference import Clusters, CoreferenceBatch
from retable.models.base import Model, SpanRanker
from retable.objectives.base import Objective


class Antecedents(Objective):
    """A model that ranks the antecedents of spans, and a softmax over them and ε, none."""

    def __init__(self, model: Model):
        super().__init__()
        require_ranker(type(model))
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

    def predict(self, batch: CoreferenceBatch) -> list[Clusters]:
        """The clusters of each document: a span joins that of its best antecedent."""
        spans, documents, antecedents = (part.tolist() for part in self.best(batch))
        n_words = batch.documents.bincount(batch.lengths - 2)  # without the ends of sentences
        starts = [0, *n_words.long().cumsum(0).tolist()]
        found: list[Clusters] = [[] for _ in n_words]
        clusters: dict[int, list[tuple[int, int]]] = {}  # by each of its spans
        for i, (span, document, antecedent) in enumerate(zip(spans, documents, antecedents, strict=True)):
            if antecedent >= 0:
                if antecedent not in clusters:
                    clusters[antecedent] = [_mention(spans[antecedent], starts[document])]
                    found[document].append(clusters[antecedent])
                clusters[i] = clusters[antecedent]
                clusters[i].append(_mention(span, starts[document]))
        return [sorted(of_document) for of_document in found]

    def best(self, batch: CoreferenceBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The spans (N, 2), the document of each (N,), and the place among them of its best antecedent (N,), −1 for
        none."""
        spans, documents, antecedents, scores = self(batch)
        none = antecedents.new_full((len(antecedents), 1), -1)  # of a lone span there are no antecedents
        best = torch.cat([none, antecedents], dim=1).gather(1, scores.argmax(dim=1, keepdim=True))
        return spans, documents, best[:, 0]


def _mention(span: list[int], start: int) -> tuple[int, int]:
    """A span of the batch's words, first and last, as one of its document's, which begin at `start`."""
    return span[0] - start, span[1] + 1 - start


def require_ranker(model: type[Model]) -> None:
    """Raise UsageError for a kind of model that ranks no antecedents."""
    if not issubclass(model, SpanRanker):
        raise UsageError(
            f"{model.__name__} does not rank the antecedents of spans; take recipe=coreference/mention_ranker"
        )


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
