import pytest
import torch
from torch import nn

from retable.data.examples import ExampleBatch
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification, pool
from retable.objectives.states import states_of
from tests.contracts.model_cases import (
    IDS,
    LENGTHS,
    OTHER_LENGTHS,
    OTHERS,
    B,
    D,
    T,
    V,
    build,
    spread,
)  # fmt: skip

LABELS = torch.tensor([0, 2, 1, 1])
BATCH = ExampleBatch(IDS, LENGTHS, LABELS)
PAIRS = BATCH._replace(other_ids=OTHERS, other_lengths=OTHER_LENGTHS)
SECONDS = ExampleBatch(OTHERS, OTHER_LENGTHS, LABELS)


ONE_WAY = ("lstm", "gpt", "one-stack t5")
APART = ("bilstm", "bilstm with attention", "elmo bilstm", "t5 encoder", "deep averaging", "convolutions")


def classification(name: str, **settings) -> Classification:
    objective = Classification(build(name), 3, dropout=0.0, **settings).eval()
    spread(objective.head)
    return objective


def test_a_models_own_summary_is_taken():
    electra, convolutions = classification("bert, without pooler"), classification("convolutions")
    torch.testing.assert_close(electra(BATCH), electra.head(electra.model(IDS, LENGTHS)[:, 0]))
    torch.testing.assert_close(convolutions(BATCH), convolutions.head(convolutions.model(IDS, LENGTHS)))


@pytest.mark.parametrize("name", ONE_WAY)
def test_the_auxiliary_loss_is_that_of_a_tied_language_model(name):
    batch = BATCH._replace(lengths=LENGTHS.clamp(min=2))
    objective = classification(name, auxiliary=0.7)
    language_model = CausalLM(objective.model, V, tie=True, bias=False, reduction="mean")
    nats = []
    for row, length in zip(IDS, batch.lengths, strict=True):
        log_prob, _ = language_model.log_prob(row[None, : length - 1], row[None, 1:length])
        nats.append(-log_prob.mean())
    loss, metrics, _ = objective.loss(batch, None, step=0)
    objective.auxiliary = 0.0
    expected = objective.loss(batch, None, step=0)[0]
    torch.testing.assert_close(metrics["loss"], expected.detach())
    torch.testing.assert_close(metrics["auxiliary_loss"], torch.stack(nats).mean().detach())
    torch.testing.assert_close(loss, expected + 0.7 * torch.stack(nats).mean())


@pytest.mark.parametrize("name", [name for name in APART if name != "bilstm with attention"])
def test_a_pair_read_apart_is_classified_by_u_v_their_difference_and_product(name):
    objective = classification(name, pairs=True)
    single = Classification(objective.model, 3, dropout=0.0).eval()
    single.head = nn.Identity()
    u, v = single(BATCH), single(SECONDS)
    torch.testing.assert_close(objective(PAIRS), objective.head(torch.cat([u, v, abs(u - v), u * v], dim=1)))


@pytest.mark.parametrize("name", ONE_WAY)
def test_of_both_orders_the_summaries_are_added(name):
    objective = classification(name, auxiliary=0.5, pairs=True)
    nn.init.zeros_(objective.head.bias)
    pairs = PAIRS._replace(lengths=LENGTHS.clamp(min=2), other_lengths=OTHER_LENGTHS.clamp(min=2))
    alone = BATCH._replace(lengths=pairs.lengths), SECONDS._replace(lengths=pairs.other_lengths)
    torch.testing.assert_close(objective(pairs), objective(alone[0]) + objective(alone[1]))
    auxiliary = [objective.loss(order, None, 0)[1]["auxiliary_loss"] for order in alone]
    torch.testing.assert_close(objective.loss(pairs, None, 0)[1]["auxiliary_loss"], sum(auxiliary) / 2)


def test_a_hidden_layer_stands_before_the_labels():
    objective = classification("bilstm", pairs=True, d_hidden=5)
    plain = Classification(objective.model, 3, dropout=0.0, pairs=True)
    plain.head = nn.Identity()
    first, _, _, last = objective.head
    torch.testing.assert_close(objective(PAIRS), last(torch.tanh(first(plain(PAIRS)))))
    assert first.weight.shape == (5, 4 * D) and last.weight.shape == (3, 5)


def test_of_a_pair_read_together_the_summaries_are_those_of_its_own_states():
    objective = classification("bilstm with attention", pairs=True)
    one, other = objective.model.read_pair(IDS, LENGTHS, OTHERS, OTHER_LENGTHS)
    u, v = pool(one, LENGTHS, "max"), pool(other, OTHER_LENGTHS, "max")
    torch.testing.assert_close(objective(PAIRS), objective.head(torch.cat([u, v, abs(u - v), u * v], dim=1)))


def test_poolings_leave_padding_out():
    hidden = torch.randn(B, T, D, generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(LENGTHS):
        states = hidden[row, :length]
        torch.testing.assert_close(pool(hidden, LENGTHS, "mean")[row], states.sum(dim=0) / length)
        torch.testing.assert_close(pool(hidden, LENGTHS, "max")[row], states.max(dim=0).values)
        assert torch.equal(pool(hidden, LENGTHS, "token")[row], states[0])


def test_the_last_states_are_those_that_an_lstm_returns():
    torch.manual_seed(0)
    lstm, inputs = BidirectionalLSTM(5, D), torch.randn(B, T, 5)
    found = pool(lstm(inputs, LENGTHS), LENGTHS, "last")
    for row, length in enumerate(LENGTHS):
        alone = inputs[row : row + 1, :length]
        last = [layer(words)[1][0] for layer, words in ((lstm.forth[0], alone), (lstm.back[0], alone.flip(1)))]
        torch.testing.assert_close(found[row], torch.cat(last).flatten())


@pytest.mark.parametrize(
    ("name", "pooling"),
    [("bilstm", "max"), ("bilstm", "last"), ("elmo bilstm", "token"), ("t5 encoder", "mean"), ("bert", "mean")],
)
def test_each_pooling_is_of_the_encoders_states(name, pooling):
    objective = classification(name, **({} if pooling == "max" else {"pooling": pooling}))
    frozen = {n.split(".")[1] for n, p in objective.named_parameters() if not p.requires_grad}
    assert frozen == ({"pooler"} if name == "bert" else set())
    logits = objective.head(pool(states_of(objective.model, IDS, LENGTHS), LENGTHS, pooling))
    torch.testing.assert_close(objective(BATCH), logits)


@pytest.mark.parametrize("pooling", ["the last", "max", "mean"])
@pytest.mark.parametrize("name", ONE_WAY)
def test_a_left_to_right_model_is_summed_up_by_its_last_position_or_all_of_them(name, pooling):
    """Each sequence is read separately; for a pair, the two orders are added."""
    settings = {} if pooling == "the last" else {"pooling": pooling}
    objective, expected = classification(name, pairs=True, **settings), torch.zeros(B, D)
    for ids, lengths in ((IDS, LENGTHS), (OTHERS, OTHER_LENGTHS)):
        for row, length in enumerate(lengths):
            states = objective.model(ids[row : row + 1, :length])[0][0]  # (length, D)
            summary = {"the last": states[-1], "mean": states.mean(dim=0), "max": states.max(dim=0).values}
            expected[row] += summary[pooling]
    torch.testing.assert_close(objective(PAIRS), objective.head(expected))
