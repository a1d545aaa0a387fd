import numpy as np
import pytest
import torch

from retable.data.batches import measured
from retable.evaluation.translation import NatsPerToken, align
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.objectives.translation import Translation

V, D, END = 13, 8, 3
SOURCES = [[5, 6, 4, END], [7, END], [9, 9, 1, 2, 8, END]]
TARGETS = [[8, END], [9, 4, 4, 10, END], [END]]


@pytest.fixture
def objective() -> Translation:
    torch.manual_seed(0)
    return Translation(RNNEncoderDecoder(V, D, D, 1, 0.5, attention="additive"), V, 0.3, tie=True, bias=False).eval()


@pytest.mark.parametrize("max_tokens", [6, 12, 100])
def test_nats_are_of_all_target_tokens_whatever_the_batches(objective, max_tokens):
    total = 0.0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        inputs = torch.tensor([[END, *target[:-1]]])
        hidden = objective.model(torch.tensor([source]), torch.tensor([len(source)]), inputs)
        log_probs = objective.head(hidden)[0].log_softmax(dim=1)
        total -= sum(log_probs[i, token].item() for i, token in enumerate(target))
    found = measured(NatsPerToken(SOURCES, TARGETS, max_tokens), objective)
    assert found == {"loss": pytest.approx(total / 8, rel=1e-5)}


def test_an_alignment_has_a_row_a_target_token(objective):
    shares = align(objective, SOURCES[0], TARGETS[1])
    assert shares.shape == (5, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(align(objective, SOURCES[0], TARGETS[1]), shares)
