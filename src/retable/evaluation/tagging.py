"""Tags predicted for the words of sentences, and how right they are."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from retable.data.tagged import TaggedExample, tagged_by_length
from retable.evaluation.held_out import on_device
from retable.metrics.spans import Tags, span_f1, span_precision, span_recall

COLUMNS = ("words", "right")  # of a sentence; with spans also those that are right, predicted, and labelled
SPAN_COLUMNS = ("spans_right", "spans_predicted", "spans_labelled")


@torch.inference_mode()
def predict_tags(
    objective: nn.Module, examples: Sequence[TaggedExample], tags: Sequence[str], batch_size: int = 128
) -> list[list[str]]:
    """The best of `tags` for each word of each sentence, in their order."""
    predictions: list[list[str]] = [[] for _ in examples]
    device = next(objective.parameters()).device
    for places, batch in tagged_by_length(examples, batch_size):
        best = objective.predict(on_device(device, batch)).cpu()  # type: ignore[operator]
        for place, row in zip(places, best.tolist(), strict=True):
            predictions[place] = [tags[tag] for tag in row[: len(examples[place].words)]]
    return predictions


def sentence_counts(
    labels: Sequence[Tags],
    predictions: Sequence[Tags],
    spans: Callable[[Sequence[Tags], Sequence[Tags]], NDArray[np.int64]] | None,
) -> np.ndarray:
    """(n, 2) or, with a function that counts `spans`, (n, 5) int64: the COLUMNS of each sentence, and the
    SPAN_COLUMNS."""
    right = [sum(map(str.__eq__, true, guessed)) for true, guessed in zip(labels, predictions, strict=True)]
    counts = np.array([[len(true) for true in labels], right]).T
    return np.hstack([counts, spans(labels, predictions)]) if spans else counts


def tagging_metrics(counts: np.ndarray) -> dict[str, float]:
    """`accuracy` of words and, where spans were counted, their `precision`, `recall` and `f1`."""
    sums = counts.sum(axis=0)
    metrics = {"accuracy": float(sums[1] / sums[0])}
    if len(sums) > len(COLUMNS):
        shares = {"precision": span_precision, "recall": span_recall, "f1": span_f1}
        metrics |= {name: float(share(sums[2:])) for name, share in shares.items()}
    return metrics
