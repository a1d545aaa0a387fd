import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.bilstm import BiLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from tests.nn.by_hand import log_softmax

V, D, B, T = 11, 8, 3, 6


def test_an_encoder_is_refused():
    with pytest.raises(UsageError, match=r"BiLSTM reads the sentence from both sides.*recipe=recurrent/lstm or trans"):
        CausalLM(BiLSTM(V, D, D, 1, 0.0), V, tie=False, bias=True, reduction="mean")


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_loss_and_log_prob_are_the_labels_log_probabilities(name):
    torch.manual_seed(0)
    model = LSTM(V, D, 2, 0.0, init_range=0.1) if name == "lstm" else GPT(V, D, 2, 2, T, 0.0)
    objective, window = CausalLM(model, V, tie=False, bias=True, reduction="mean"), torch.randint(V, (B, T + 1))
    input_ids, labels = window[:, :-1], window[:, 1:]
    hidden = objective.model(input_ids)[0].detach().double().numpy()
    weight, bias = (parameter.detach().double().numpy() for parameter in objective.head.parameters())
    logits = hidden @ weight.T + bias
    expected = np.take_along_axis(log_softmax(logits), labels[..., None].numpy(), axis=2)[..., 0]
    log_probs, _ = objective.log_prob(input_ids, labels)
    assert log_probs.dtype == torch.float32
    np.testing.assert_allclose(log_probs.detach(), expected, atol=1e-5)
    loss, metrics, _ = objective.loss(TokenBatch(input_ids, labels, True), None, step=0)
    assert loss.item() == pytest.approx(-expected.mean(), abs=1e-5)
    assert metrics["loss"].item() == loss.item() and not metrics["loss"].requires_grad
