"""Test the loss of all prefixes against a loop that reads each prefix separately."""

import pytest
import torch

from retable.data.examples import ExampleBatch
from retable.objectives.prefix_classification import PrefixClassification
from tests.contracts.model_cases import IDS, LENGTHS, build, spread

LABELS = torch.tensor([0, 2, 1, 1])
BATCH = ExampleBatch(IDS, LENGTHS, LABELS)
TEXTS = [row[:length].tolist() for row, length in zip(IDS, LENGTHS, strict=True)]


@pytest.fixture(params=["lstm", "gpt"])
def objective(request) -> PrefixClassification:
    made = PrefixClassification(build(request.param), 3, dropout=0.0).eval()
    spread(made)
    return made


def log_probs(objective: PrefixClassification, text: list[int]) -> torch.Tensor:
    return objective.head(objective.model(torch.tensor([text]))[0][0, -1]).log_softmax(dim=0)


def test_the_loss_is_that_of_every_beginning_read_alone(objective):
    nats = [
        -log_probs(objective, text[:n])[label]
        for text, label in zip(TEXTS, LABELS, strict=True)
        for n in range(1, len(text) + 1)
    ]
    loss, metrics, _ = objective.loss(BATCH, None, 0)
    torch.testing.assert_close(loss, torch.stack(nats).mean())
    torch.testing.assert_close(metrics["loss"], loss.detach())


def test_a_text_is_classified_by_its_last_state(objective):
    expected = [int(log_probs(objective, text).argmax()) for text in TEXTS]
    assert objective.predict(BATCH).tolist() == expected
