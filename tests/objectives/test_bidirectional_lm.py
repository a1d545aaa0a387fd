import numpy as np
import pytest
import torch

from retable.data.streams import OppositeBatch, OppositeStreams
from retable.models.elmo import ELMo
from retable.objectives.bidirectional_lm import BidirectionalLM

V, D, B, T = 11, 5, 4, 6
WORDS = [f"w{i * 7}" for i in range(V)]
TOKENS = np.random.default_rng(0).integers(0, V, B * (3 * T + 4))  # three windows per row
KINDS = pytest.mark.parametrize("filters", [[(1, 4), (2, 6)], None], ids=["characters", "words"])


def objective(filters=None) -> BidirectionalLM:
    torch.manual_seed(0)
    return BidirectionalLM(ELMo(WORDS, D, 7, 2, 0.0, filters, d_character=4, n_highway=1), V)


def batches() -> OppositeStreams:
    return OppositeStreams(TOKENS, B, T)


def log_softmax(hidden: torch.Tensor, head: torch.nn.Linear) -> np.ndarray:
    weight, bias = (parameter.detach().double().numpy() for parameter in head.parameters())
    logits = hidden.detach().double().numpy() @ weight.T + bias
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@KINDS
def test_the_loss_is_the_mean_of_both_directions_cross_entropies(filters):
    lm, batch = objective(filters), batches().batch(0)
    nats = {}
    for name, (input_ids, labels, *_) in batch._asdict().items():
        hidden, _ = lm.model(input_ids, None, name == "backward")
        places = np.ix_(range(B), range(T))
        nats[f"{name}/loss"] = -log_softmax(hidden, lm.head)[(*places, labels.numpy())].mean()
        log_probs, _ = lm.log_prob(input_ids, labels, None, name == "backward")
        assert log_probs.shape == (B, T) and -log_probs.mean().item() == pytest.approx(nats[f"{name}/loss"], abs=1e-5)
    loss, metrics, _ = lm.loss(batch, None, step=0)
    expected = {"loss": sum(nats.values()) / 2, **nats}
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, abs=1e-5)
    assert loss.item() == metrics["loss"].item() and not any(value.requires_grad for value in metrics.values())


@KINDS
def test_both_directions_go_on_from_their_state_and_a_fresh_batch_forgets_it(filters):
    """The losses of the windows of an epoch are those of whole rows, each read in one piece."""
    lm, streams, state, losses = objective(filters), batches(), None, []
    for step in range(streams.steps_per_epoch):
        _, metrics, state = lm.loss(streams.batch(step), state, step)
        losses.append(metrics)
    whole = OppositeStreams(TOKENS, B, 3 * T).batch(0)
    for name, (input_ids, labels, *_) in whole._asdict().items():
        log_probs, _ = lm.log_prob(input_ids, labels, None, name == "backward")
        expected = [-part.mean().item() for part in log_probs.split(T, dim=1)]
        assert [metrics[f"{name}/loss"].item() for metrics in losses] == pytest.approx(expected, abs=1e-6)
        alone = lm.loss(OppositeBatch(*(w._replace(fresh=True) for w in streams.batch(1))), state, 1)[1]
        assert abs(alone[f"{name}/loss"] - losses[1][f"{name}/loss"]) > 1e-4
    again = lm.loss(streams.batch(streams.steps_per_epoch), state, streams.steps_per_epoch)[1]
    assert again == losses[0]  # the next epoch starts with a new state
