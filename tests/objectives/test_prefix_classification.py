"""The loss of all beginnings, against a loop that reads each of them alone."""

import pytest
import torch

from retable.data.examples import ExampleBatch
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.prefix_classification import PrefixClassification

V, LABELS = 11, 3
TEXTS, CLASSES = [[1, 2, 3, 4], [5, 6], [7, 8, 9]], [2, 0, 1]


@pytest.fixture(params=["lstm", "gpt"])
def objective(request) -> PrefixClassification:
    torch.manual_seed(0)
    model = LSTM(V, 8, 1, 0.0, init_range=1.0) if request.param == "lstm" else GPT(V, 8, 2, 2, 6, dropout=0.0)
    made = PrefixClassification(model, LABELS, dropout=0.0)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return made


def batch(weight: float = 1.0) -> ExampleBatch:
    lengths = torch.tensor([len(text) for text in TEXTS])
    padded = [text + [0] * (int(lengths.max()) - len(text)) for text in TEXTS]
    return ExampleBatch(torch.tensor(padded), lengths, torch.tensor(CLASSES), weight)


def log_probs(objective: PrefixClassification, text: list[int]) -> torch.Tensor:
    return objective.head(objective.model(torch.tensor([text]))[0][0, -1]).log_softmax(dim=0)


def test_the_loss_is_that_of_every_beginning_read_alone(objective):
    nats = [
        -log_probs(objective, text[:n])[label]
        for text, label in zip(TEXTS, CLASSES, strict=True)
        for n in range(1, len(text) + 1)
    ]
    loss, metrics, _ = objective.loss(batch(), None, 0)
    torch.testing.assert_close(loss, torch.stack(nats).mean())
    torch.testing.assert_close(metrics["loss"], loss.detach())
    torch.testing.assert_close(objective.loss(batch(0.5), None, 0)[0], loss / 2)
    loss.backward()
    gradients = [parameter.grad for name, parameter in objective.named_parameters() if "positions" not in name]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


def test_a_text_is_classified_by_its_last_state(objective):
    expected = [int(log_probs(objective, text).argmax()) for text in TEXTS]
    assert objective.eval().predict(batch()).tolist() == expected
