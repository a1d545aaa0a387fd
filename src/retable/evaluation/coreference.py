"""Clusters of mentions predicted for documents, and how right they are."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from retable.data.coreference import Clusters, CoreferenceExample, documents_by_length
from retable.evaluation.held_out import on_device


@torch.inference_mode()
def predict_clusters(
    objective: nn.Module, examples: Sequence[CoreferenceExample], batch_size: int = 16
) -> list[Clusters]:
    """The clusters of each document, in their order: a span joins that of its best antecedent."""
    predictions: list[Clusters] = [[] for _ in examples]
    device = next(objective.parameters()).device
    for places, batch in documents_by_length(examples, batch_size):
        spans, documents, antecedents = (part.tolist() for part in objective.predict(on_device(device, batch)))  # type: ignore[operator]
        starts = np.cumsum([0, *(examples[place].n_words for place in places)]).tolist()
        clusters: dict[int, list[tuple[int, int]]] = {}  # by each of its spans
        for i, ((first, last), document, antecedent) in enumerate(zip(spans, documents, antecedents, strict=True)):
            if antecedent >= 0:
                if antecedent not in clusters:
                    clusters[antecedent] = [_mention(spans[antecedent], starts[document])]
                    predictions[places[document]].append(clusters[antecedent])
                clusters[i] = clusters[antecedent]
                clusters[i].append(_mention((first, last), starts[document]))
    return [sorted(clusters) for clusters in predictions]


def _mention(span: Sequence[int], start: int) -> tuple[int, int]:
    return span[0] - start, span[1] + 1 - start
