import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.data.pairs import pad
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.translation import Translation, lead

V, D, END = 13, 8, 3
SOURCES = [[5, 6, 4, END], [7, END], [9, 9, 1, 2, 8, END]]
TARGETS = [[8, END], [9, 4, 4, 10, END], [END]]


def build(kind: str, label_smoothing: float = 0.1, tie: bool = True, bias: bool = False) -> Translation:
    torch.manual_seed(0)
    model = {
        "rnn": lambda: RNNEncoderDecoder(V, D, D, 1, 0.0, attention="bilinear"),
        "transformer": lambda: TransformerEncoderDecoder(V, D, 1, 2, 12, 20, 0.0),
    }[kind]()
    objective = Translation(model, V, label_smoothing, tie, bias).eval()
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return objective


def batch(places=(0, 1, 2)):
    return pad(SOURCES, TARGETS, np.array(places))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_loss_and_gradients_are_those_of_torch_over_real_tokens(kind, smoothing, bias):
    objective, b = build(kind, smoothing, tie=not bias, bias=bias), batch()
    loss, metrics, state = objective.loss(b, None, 0)
    logits = objective.head(objective.model(b.source_ids, b.source_lengths, b.target_ids)).flatten(0, 1)
    labels = b.labels.flatten().masked_fill((torch.arange(5) >= b.target_lengths[:, None]).flatten(), -100)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], F.cross_entropy(logits, labels))
    assert state is None
    parameters = list(objective.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters))


def test_the_lead_of_a_label_by_hand():
    hidden, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    bias = torch.tensor([0.0, 0.5, -0.5])  # logits 1, 2.5, 2.5: 2 on average
    assert lead(hidden, weight, bias, torch.tensor([0])).item() == pytest.approx(-1.0)
    assert lead(hidden, weight, None, torch.tensor([2])).item() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_weighted_losses_of_processes_average_to_the_loss_of_all(kind):
    objective = build(kind)
    whole = objective.loss(batch(), None, 0)[0]
    labels = [len(target) for target in TARGETS]
    parts = [
        objective.loss(batch(places)._replace(weight=2 * sum(labels[i] for i in places) / sum(labels)), None, 0)[0]
        for places in ((0,), (1, 2))
    ]
    torch.testing.assert_close(sum(parts) / 2, whole)
