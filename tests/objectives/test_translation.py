import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.core.errors import UsageError
from retable.data.pairs import PairBatch, pad
from retable.models.context_encoder_decoder import ContextEncoderDecoder
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.translation import Translation

V, D, END = 13, 8, 3
SOURCES = [[5, 6, 4, END], [7, END], [9, 9, 1, 2, 8, END]]
TARGETS = [[8, END], [9, 4, 4, 10, END], [END]]


def build(kind: str, label_smoothing: float, tie: bool, bias: bool, teacher_forcing: float = 1.0) -> Translation:
    torch.manual_seed(0)
    model = {
        "rnn": lambda: RNNEncoderDecoder(V, D, D, 1, 0.0, attention="bilinear"),
        "context": lambda: ContextEncoderDecoder(V, D, D, 0.0, attention=True),
        "transformer": lambda: TransformerEncoderDecoder(V, D, 1, 2, 12, 20, 0.0),
    }[kind]()
    objective = Translation(model, V, label_smoothing, tie, bias, teacher_forcing).eval()
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


def partly_free(objective: Translation, b: PairBatch, forced: list[bool]) -> torch.Tensor:
    """The loss of a batch, one pair and one step at a time; `forced[t]`: is the input of step t the reference?"""
    total = torch.zeros(())
    for i, n in enumerate(b.target_lengths.tolist()):
        state = objective.model.encode(b.source_ids[i : i + 1, : b.source_lengths[i]], b.source_lengths[i : i + 1])
        token = b.target_ids[i, 0]
        for t in range(n):
            hidden, state = objective.model.decode(token[None, None], state)
            log_probs = objective.head(hidden)[0, 0].log_softmax(dim=0)
            total = total - log_probs[b.labels[i, t]]
            if t + 1 < n:
                token = b.target_ids[i, t + 1] if forced[t + 1] else log_probs.argmax()
    return total / b.target_lengths.sum()


@pytest.mark.parametrize("kind", ["rnn", "transformer", "context"])
def test_an_evaluation_below_full_teacher_forcing_is_free_running(kind):
    objective, b = build(kind, 0.0, tie=False, bias=True, teacher_forcing=0.5), pad(SOURCES, TARGETS, np.arange(3))
    expected = partly_free(objective, b, [False] * 5)
    torch.testing.assert_close(objective.loss(b, None, 0)[0], expected)
    nats = -objective.log_prob(b)
    torch.testing.assert_close(nats.sum() / b.target_lengths.sum(), expected)
    assert not torch.isclose(expected, partly_free(objective, b, [True] * 5))


@pytest.mark.parametrize("kind", ["rnn", "context"])
def test_teacher_forcing_in_training_is_drawn_by_step(kind):
    objective, b = (
        build(kind, 0.0, tie=False, bias=True, teacher_forcing=0.5).train(),
        pad(SOURCES, TARGETS, np.arange(3)),
    )
    found = set()
    for seed in range(6):
        forced = (torch.manual_seed(seed), torch.rand(b.target_ids.shape[1]))[1] < 0.5
        torch.manual_seed(seed)
        loss = objective.loss(b, None, 0)[0]
        torch.testing.assert_close(loss, partly_free(objective, b, forced.tolist()))
        torch.manual_seed(seed)
        assert torch.equal(objective.loss(b, None, 0)[0], loss)
        found.add(round(loss.item(), 4))
    assert len(found) > 1


def test_with_a_probability_of_1_the_loss_is_the_ordinary_one():
    ordinary, b = build("rnn", 0.0, tie=False, bias=True), pad(SOURCES, TARGETS, np.arange(3))
    forced = build("rnn", 0.0, tie=False, bias=True, teacher_forcing=1.0)
    assert torch.equal(forced.loss(b, None, 0)[0], ordinary.loss(b, None, 0)[0])
    torch.testing.assert_close(forced._partly_free(b, torch.ones(5) > 0), ordinary.model(*b[:3]))
    torch.testing.assert_close(ordinary.loss(b, None, 0)[0], partly_free(ordinary, b, [True] * 5))


def test_the_decoder_begins_with_the_start_mark():
    b = pad(SOURCES, TARGETS, np.arange(3), start=12)
    assert b.target_ids[:, 0].tolist() == [12] * 3 and torch.equal(b.labels, pad(SOURCES, TARGETS, np.arange(3)).labels)


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_teacher_forcing_is_a_probability(probability):
    with pytest.raises(UsageError, match=r"head\.teacher_forcing"):
        build("rnn", 0.0, tie=False, bias=True, teacher_forcing=probability)


def test_an_evaluation_draws_no_random_numbers():
    objective = build("rnn", 0.0, tie=False, bias=True, teacher_forcing=0.5)
    before = torch.get_rng_state()
    objective.loss(pad(SOURCES, TARGETS, np.arange(3)), None, 0)
    assert torch.equal(torch.get_rng_state(), before)
    objective.train().loss(pad(SOURCES, TARGETS, np.arange(3)), None, 0)
    assert not torch.equal(torch.get_rng_state(), before)
