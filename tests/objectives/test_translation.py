import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.data.pairs import pad
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.translation import Translation

V, D, END = 13, 8, 3
SOURCES = [[5, 6, 4, END], [7, END], [9, 9, 1, 2, 8, END]]
TARGETS = [[8, END], [9, 4, 4, 10, END], [END]]


def build(kind: str, label_smoothing: float, tie: bool, bias: bool) -> Translation:
    torch.manual_seed(0)
    model = {
        "rnn": lambda: RNNEncoderDecoder(V, D, D, 1, 0.0, attention="bilinear"),
        "transformer": lambda: TransformerEncoderDecoder(V, D, 1, 2, 12, 20, 0.0),
    }[kind]()
    objective = Translation(model, V, label_smoothing, tie, bias).eval()
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return objective


@pytest.mark.parametrize(
    ("kind", "smoothing", "bias"), [("rnn", 0.0, True), ("rnn", 0.5, False), ("transformer", 0.1, True)]
)
def test_loss_and_gradients_are_those_of_torch_over_real_tokens(kind, smoothing, bias):
    objective, b = build(kind, smoothing, tie=not bias, bias=bias), pad(SOURCES, TARGETS, np.arange(3))
    loss, metrics, state = objective.loss(b, None, 0)
    logits = objective.head(objective.model(b.source_ids, b.source_lengths, b.target_ids)).flatten(0, 1)
    labels = b.labels.flatten().masked_fill((torch.arange(5) >= b.target_lengths[:, None]).flatten(), -100)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], F.cross_entropy(logits, labels))
    assert state is None
    parameters = list(objective.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters))
