import numpy as np
import pytest
import torch
from torch import nn

from retable.data.tagged import TaggedExample
from retable.evaluation.tagging import predict_tags, sentence_counts, tagging_metrics
from retable.metrics.roles import role_counts
from retable.metrics.spans import span_counts, span_metrics

TAGS = ["O", "B-x", "I-x"]


class Echo(nn.Module):
    """Predicts for each word the tag that its id names."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def predict(self, batch):
        return batch.input_ids.take_along_dim(batch.words, dim=1)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_each_sentence_gets_its_own_tags(batch_size):
    ids = [[1, 2, 2], [0], [2, 1], [0, 0, 1, 2]]
    examples = [TaggedExample([9, *row, 9], range(1, len(row) + 1), [0] * len(row)) for row in ids]
    predictions = predict_tags(Echo(), examples, TAGS, batch_size)
    assert predictions == [[TAGS[i] for i in row] for row in ids]


def test_counts_by_sentence_add_up_to_the_metrics():
    gold = [["B-x", "I-x", "O"], ["O"], ["O", "B-x"]]
    guessed = [["B-x", "I-x", "B-x"], ["O"], ["O", "O"]]
    counts = sentence_counts(gold, guessed, span_counts)
    assert counts.tolist() == [[3, 2, 1, 2, 1], [1, 1, 0, 0, 0], [2, 1, 0, 0, 1]]
    metrics = tagging_metrics(counts)
    assert metrics.pop("accuracy") == pytest.approx(4 / 6)
    assert metrics == pytest.approx(span_metrics(gold, guessed))
    words = sentence_counts(gold, guessed, None)
    assert np.array_equal(words, counts[:, :2]) and tagging_metrics(words) == pytest.approx({"accuracy": 4 / 6})


def test_of_roles_the_predicates_own_span_is_no_span():
    """It is counted among the words alone: with it, F1 would be 2 · 2 / (3 + 3)."""
    gold, guessed = [["B-A0", "B-V", "I-V", "B-A1"]], [["B-A0", "B-V", "I-V", "B-A0"]]
    counts = sentence_counts(gold, guessed, role_counts)
    assert counts.tolist() == [[4, 3, 1, 2, 2]]
    assert tagging_metrics(counts) == pytest.approx({"accuracy": 0.75, "precision": 0.5, "recall": 0.5, "f1": 0.5})
    assert span_metrics(gold, guessed)["f1"] == pytest.approx(2 / 3)
