"""The antecedent objective of coreference: predict which earlier span, if any, each span refers to.

Lee et al. 2017, "End-to-end Neural Coreference Resolution", arXiv 1707.07045, sections 3 and 6.

Shapes: N spans, K possible antecedents per span, M mentions.
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
    """A model that scores each span's antecedents, with a softmax over the antecedents and ε (no antecedent)."""

    def __init__(self, model: Model):
        super().__init__()
        require_ranker(type(model))
        self.model = model

    def forward(self, batch: CoreferenceBatch) -> Any:
        """Return the model's `Ranking`."""
        return self.model(*batch[:3])

    def loss(self, batch: CoreferenceBatch, state: Any, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        """Compute the mean over documents of −Σ_i log Σ_{y ∈ Y(i) ∩ GOLD(i)} P(y); Σ_i is over a document's spans."""
        spans, _, antecedents, scores = self(batch)
        likelihood = marginal_likelihood(scores, antecedents, clusters_of(spans, batch))
        loss = -likelihood.sum() / len(batch.documents.unique()) * batch.weight
        return loss, {"loss": loss.detach()}, None

    def predict(self, batch: CoreferenceBatch) -> list[Clusters]:
        """Return the predicted clusters of each document: each span joins the cluster of its best antecedent."""
        spans, documents, antecedents = (part.tolist() for part in self.best(batch))
        n_words = batch.documents.bincount(batch.lengths - 2)  # `batch.lengths` includes two end marks per sentence
        starts = [0, *n_words.long().cumsum(0).tolist()]
        by_document: list[Clusters] = [[] for _ in n_words]
        clusters: dict[int, list[tuple[int, int]]] = {}  # the cluster of each span
        for i, (span, document, antecedent) in enumerate(zip(spans, documents, antecedents, strict=True)):
            if antecedent >= 0:
                if antecedent not in clusters:
                    clusters[antecedent] = [_mention(spans[antecedent], starts[document])]
                    by_document[document].append(clusters[antecedent])
                clusters[i] = clusters[antecedent]
                clusters[i].append(_mention(span, starts[document]))
        return [sorted(of_document) for of_document in by_document]

    def best(self, batch: CoreferenceBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the spans (N, 2), the index of each span's document (N,), and the index of its best antecedent (N,).

        A span without an antecedent has the antecedent index −1.
        """
        spans, documents, antecedents, scores = self(batch)
        none = antecedents.new_full((len(antecedents), 1), -1)
        best = torch.cat([none, antecedents], dim=1).gather(1, scores.argmax(dim=1, keepdim=True))
        return spans, documents, best[:, 0]


def _mention(span: list[int], start: int) -> tuple[int, int]:
    """Convert the word indices (first, last) of a span in the batch to (first, stop) in the span's document.

    start: the index in the batch of the document's first word.
    """
    return span[0] - start, span[1] + 1 - start


def require_ranker(model: type[Model]) -> None:
    """Raise UsageError unless models of this class rank antecedents."""
    if not issubclass(model, SpanRanker):
        raise UsageError(
            f"{model.__name__} does not rank the antecedents of spans; take recipe=coreference/mention_ranker"
        )


def clusters_of(spans: Tensor, batch: CoreferenceBatch) -> Tensor:
    """Return the cluster number (N,) of each of `spans` (N, 2); the number is 0 for a span that is not a mention."""
    same = (spans[:, None] == batch.mentions).all(dim=2)  # (N, M)
    return F.pad(same * batch.clusters, (1, 0)).amax(dim=1)


def marginal_likelihood(scores: Tensor, antecedents: Tensor, clusters: Tensor) -> Tensor:
    """Compute for each span log Σ_y P(y) (N,), in nats, where the sum is over the span's correct antecedents y.

    The correct antecedents of a span are the earlier spans in its cluster, or ε if its cluster has no earlier span.
    """
    exist = scores[:, 1:] > -torch.inf  # (N, K)
    right = exist & (clusters[antecedents] == clusters[:, None]) & (clusters[:, None] > 0)
    right = torch.cat([~right.any(dim=1, keepdim=True), right], dim=1)  # (N, 1 + K)
    return scores.masked_fill(~right, -torch.inf).logsumexp(dim=1) - scores.logsumexp(dim=1)
