from functools import partial

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from retable.core.errors import UsageError
from retable.data.examples import ExampleBatch
from retable.exchange.families import weights_in_transformers
from retable.models.bag_of_words import DeepAveraging
from retable.models.base import Encoder, LeftToRight, Model, SequenceEncoder
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.models.bilstm_attention import BiLSTMAttention
from retable.models.convolutional_encoder import ConvolutionalEncoder
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.t5 import T5, OneStackT5
from retable.models.t5_encoder import T5Encoder
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification, pool
from retable.objectives.states import states_of

V, D, N_LABELS = 11, 8, 3
LENGTHS = torch.tensor([3, 7, 2])
WORDS = [f"w{i}" for i in range(V)]
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.0, filters=None)
T5_SIZES = {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "d_ff": 12, "dropout": 0.0}
MODELS = {
    "bilstm": lambda: BiLSTM(V, 6, D, 1, 0.0),
    "lstm": lambda: LSTM(V, D, 1, 0.0, init_range=0.5),
    "deep_averaging": lambda: DeepAveraging(V, D, 2, 0.0),
    "cnn": lambda: ConvolutionalEncoder(V, 6, (2, 3), D // 2, 0.0),
    "gpt": lambda: GPT(V, D, 2, 2, max_length=7, dropout=0.0),
    "bert": lambda: BERT(V, D, 2, 2, max_length=7, dropout=0.0),
    "electra": lambda: BERT(V, D, 2, 2, max_length=7, dropout=0.0, pooler=False),
    "elmo": lambda: ELMoBiLSTM(WORDS, ELMO, 6, D, 1, 0.0, frozen=False),
    "t5": lambda: T5Encoder(**T5_SIZES),
    "prefix_lm": lambda: OneStackT5(**T5_SIZES),
}
LEFT_TO_RIGHT = ["lstm", "gpt", "prefix_lm"]
CASES = [(name, 0.0) for name in MODELS] + [(name, 0.5) for name in LEFT_TO_RIGHT]


def classification(name: str, auxiliary: float = 0.0) -> Classification:
    torch.manual_seed(0)
    return Classification(MODELS[name](), N_LABELS, dropout=0.0, auxiliary=auxiliary)


def batch() -> ExampleBatch:
    input_ids = torch.randint(V, (3, 7), generator=torch.Generator().manual_seed(1))
    return ExampleBatch(input_ids, LENGTHS, torch.tensor([0, 2, 1]))


def alone(row: int) -> ExampleBatch:
    input_ids, lengths, labels = (part[row : row + 1] for part in batch()[:3])
    return ExampleBatch(input_ids[:, : int(lengths)], lengths, labels)


@pytest.mark.parametrize(("name", "auxiliary"), [("bert", 0.0), ("gpt", 0.5)])
def test_the_loss_is_times_the_batchs_weight(name, auxiliary):
    objective = classification(name, auxiliary)
    whole, metrics, _ = objective.loss(batch(), None, 0)
    half, halved, _ = objective.loss(batch()._replace(weight=0.5), None, 0)
    assert half.item() == pytest.approx(whole.item() / 2)
    assert {k: v.item() for k, v in halved.items()} == pytest.approx({k: v.item() / 2 for k, v in metrics.items()})


class Given:
    """A backbone of width 2 that gives fixed hidden states; with the kind that a model is."""

    d_model = 2

    def __init__(self):
        super().__init__()
        self.hidden = torch.tensor([[[-3.0, 1.0], [-1.0, -4.0], [0.0, 0.0]]])  # the third position is padding

    def initialise(self, module: nn.Module) -> None:
        nn.init.eye_(module.weight)
        nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, lengths: Tensor | None = None) -> Tensor | tuple[Tensor, None]:
        if isinstance(self, SequenceEncoder):
            return self.hidden[:, 1]
        return (self.hidden, None) if isinstance(self, LeftToRight) else self.hidden


def given(kind: type[Model]) -> Model:
    return type("Given", (Given, kind), {})()


@pytest.mark.parametrize(
    ("kind", "summary"),
    [(Encoder, [-1.0, 1.0]), (LeftToRight, [-1.0, -4.0]), (SequenceEncoder, [-1.0, -4.0])],
)
def test_summary_is_the_maximum_over_time_the_last_position_or_the_models_own(kind, summary):
    objective = Classification(given(kind), n_labels=2, dropout=0.0)
    example = ExampleBatch(torch.zeros(1, 3, dtype=torch.long), torch.tensor([2]), torch.tensor([0]))
    assert objective(example).tolist() == [summary]


def test_bert_equals_that_of_transformers():
    """Logits, loss and the gradient of the pooler, the padding masked, with the same weights."""
    ours = classification("bert")
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": N_LABELS}
    sizes = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    theirs = BertForSequenceClassification(
        BertConfig(**sizes, intermediate_size=4 * D, max_position_embeddings=7, **settings)
    )
    missing, unexpected = theirs.load_state_dict(weights_in_transformers(ours), strict=False)
    assert not unexpected and all("position_ids" in name or "token_type_ids" in name for name in missing)
    mask = (torch.arange(7) < LENGTHS[:, None]).long()
    expected = theirs(batch().input_ids, attention_mask=mask, labels=batch().labels)
    torch.testing.assert_close(ours(batch()), expected.logits, atol=1e-5, rtol=0)
    loss, _, _ = ours.loss(batch(), None, step=0)
    torch.testing.assert_close(loss, expected.loss, atol=1e-5, rtol=0)
    loss.backward()
    expected.loss.backward()
    torch.testing.assert_close(
        ours.model.pooler.weight.grad, theirs.bert.pooler.dense.weight.grad, atol=1e-5, rtol=1e-4
    )


def test_electra_is_summed_up_by_the_state_of_its_first_token():
    objective = classification("electra").eval()
    hidden = objective.model(batch().input_ids, LENGTHS)
    torch.testing.assert_close(objective(batch()), objective.head(hidden[:, 0]))


@pytest.mark.parametrize(("name", "auxiliary"), CASES)
def test_neither_padding_nor_the_rows_beside_it_change_a_row(name, auxiliary):
    objective = classification(name, auxiliary).eval()
    logits, (loss, _, _) = objective(batch()), objective.loss(batch(), None, step=0)
    for row in range(3):
        torch.testing.assert_close(objective(alone(row))[0], logits[row])
    torch.testing.assert_close(loss, torch.stack([objective.loss(alone(row), None, 0)[0] for row in range(3)]).mean())


@pytest.mark.parametrize(("name", "auxiliary"), CASES)
def test_the_loss_reaches_every_parameter(name, auxiliary):
    objective = classification(name, auxiliary)
    objective.loss(batch(), None, step=0)[0].backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in objective.named_parameters()}
    assert all(reached.values()), reached


@pytest.mark.parametrize("name", MODELS)
def test_loss_is_the_mean_cross_entropy(name):
    objective, labels = classification(name), batch().labels
    loss, metrics, state = objective.loss(batch(), None, step=0)
    expected = -objective(batch()).softmax(dim=1)[range(3), labels].log().mean()
    torch.testing.assert_close(loss, expected)
    assert metrics == {"loss": loss.detach()} and state is None


@pytest.mark.parametrize("name", LEFT_TO_RIGHT)
def test_the_auxiliary_loss_is_that_of_a_tied_language_model(name):
    objective, plain = classification(name, auxiliary=0.7), classification(name)
    language_model = CausalLM(objective.model, V, tie=True, bias=False, reduction="mean")
    input_ids, lengths = batch()[:2]
    nats = []
    for row, length in zip(input_ids, lengths, strict=True):
        log_prob, _ = language_model.log_prob(row[None, : length - 1], row[None, 1:length])
        nats.append(-log_prob.mean())
    loss, metrics, _ = objective.loss(batch(), None, step=0)
    expected = plain.loss(batch(), None, step=0)[0]
    torch.testing.assert_close(metrics["loss"], expected.detach())
    torch.testing.assert_close(metrics["auxiliary_loss"], torch.stack(nats).mean().detach())
    torch.testing.assert_close(loss, expected + 0.7 * torch.stack(nats).mean())


def test_the_auxiliary_loss_by_hand():
    """States and embeddings of one dimension: a softmax over two words whose logits are known."""
    model = LSTM(2, 1, 1, 0.0, init_range=0.5)
    objective = Classification(model, 2, dropout=0.0, auxiliary=0.5)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.tensor([[0.0], [1.0]]))
    model.forward = lambda ids: (torch.tensor([[[2.0], [-1.0], [9.0]], [[0.5], [9.0], [9.0]]]), None)
    given = ExampleBatch(torch.tensor([[0, 1, 0], [0, 1, 1]]), torch.tensor([3, 2]), torch.tensor([0, 1]))
    first = (torch.log1p(torch.exp(torch.tensor(-2.0))) + torch.log1p(torch.exp(torch.tensor(-1.0)))) / 2
    second = torch.log1p(torch.exp(torch.tensor(-0.5)))
    torch.testing.assert_close(objective.loss(given, None, 0)[1]["auxiliary_loss"], (first + second) / 2)


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(LEFT_TO_RIGHT)))
def test_an_auxiliary_loss_of_an_encoder_is_refused(name):
    with pytest.raises(
        UsageError, match=r"has seen the tokens that auxiliary=0\.5 asks it to predict; .*transformer/gpt"
    ):
        classification(name, auxiliary=0.5)


def test_an_auxiliary_loss_without_a_softmax_is_refused():
    with pytest.raises(UsageError, match=r"no word embedding as wide as its states, 2, .*write auxiliary=0"):
        Classification(given(LeftToRight), 2, dropout=0.0, auxiliary=0.5)


def pair_batch() -> ExampleBatch:
    generator = torch.Generator().manual_seed(2)
    other = torch.randint(V, (3, 5), generator=generator)
    return batch()._replace(other_ids=other, other_lengths=torch.tensor([5, 1, 3]))


def swapped(pairs: ExampleBatch) -> ExampleBatch:
    return ExampleBatch(
        pairs.other_ids, pairs.other_lengths, pairs.labels, other_ids=pairs.input_ids, other_lengths=pairs.lengths
    )


def first_alone(pairs: ExampleBatch) -> ExampleBatch:
    return ExampleBatch(*pairs[:3])


APART = sorted(set(MODELS) - {*LEFT_TO_RIGHT, "bert", "electra"})


@pytest.mark.parametrize("name", APART)
def test_of_a_pair_read_apart_the_label_is_told_from_u_v_their_difference_and_product(name):
    torch.manual_seed(0)
    objective = Classification(MODELS[name](), N_LABELS, dropout=0.0, pairs=True).eval()
    single = Classification(objective.model, D, dropout=0.0).eval()
    single.head = nn.Identity()
    pairs = pair_batch()
    with torch.no_grad():
        u, v = single(first_alone(pairs)), single(first_alone(swapped(pairs)))
        expected = objective.head(torch.cat([u, v, abs(u - v), u * v], dim=1))
    assert objective.head.weight.shape == (N_LABELS, 4 * D)
    torch.testing.assert_close(objective(pairs), expected)


@pytest.mark.parametrize("name", LEFT_TO_RIGHT)
def test_of_both_orders_the_summaries_are_added(name):
    torch.manual_seed(0)
    objective = Classification(MODELS[name](), N_LABELS, dropout=0.0, auxiliary=0.5, pairs=True).eval()
    objective.head.bias.data.zero_()
    pairs = pair_batch()
    one, other = objective(first_alone(pairs)), objective(first_alone(swapped(pairs)))
    torch.testing.assert_close(objective(pairs), one + other)
    torch.testing.assert_close(objective(pairs), objective(swapped(pairs)))
    alone = (first_alone(pairs), first_alone(swapped(pairs)))
    auxiliary = [objective.loss(order, None, 0)[1]["auxiliary_loss"] for order in alone]
    torch.testing.assert_close(objective.loss(pairs, None, 0)[1]["auxiliary_loss"], sum(auxiliary) / 2)


@pytest.mark.parametrize("name", [*APART, *LEFT_TO_RIGHT])
def test_the_loss_of_pairs_reaches_every_parameter_and_padding_changes_nothing(name):
    torch.manual_seed(0)
    objective = Classification(MODELS[name](), N_LABELS, dropout=0.0, pairs=True)
    pairs = pair_batch()
    objective.loss(pairs, None, step=0)[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())
    objective.eval()
    for row in range(3):
        alone = ExampleBatch(
            pairs.input_ids[row : row + 1, : pairs.lengths[row]],
            pairs.lengths[row : row + 1],
            pairs.labels[row : row + 1],
            other_ids=pairs.other_ids[row : row + 1, : pairs.other_lengths[row]],
            other_lengths=pairs.other_lengths[row : row + 1],
        )
        torch.testing.assert_close(objective(alone)[0], objective(pairs)[row])


def test_berts_segments_are_those_of_transformers():
    ours = classification("bert")
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": N_LABELS}
    sizes = {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2}
    theirs = BertForSequenceClassification(
        BertConfig(**sizes, intermediate_size=4 * D, max_position_embeddings=7, **settings)
    )
    theirs.load_state_dict(weights_in_transformers(ours), strict=False)
    segments = (torch.arange(7) >= torch.tensor([2, 4, 1])[:, None]).long()
    mask = (torch.arange(7) < LENGTHS[:, None]).long()
    expected = theirs(batch().input_ids, attention_mask=mask, token_type_ids=segments).logits
    found = ours(batch()._replace(segments=segments))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(found, ours(batch()), atol=1e-4)


def test_a_hidden_layer_stands_before_the_labels():
    torch.manual_seed(0)
    objective = Classification(MODELS["bilstm"](), N_LABELS, dropout=0.0, pairs=True, d_hidden=5)
    plain = Classification(objective.model, N_LABELS, dropout=0.0, pairs=True)
    plain.head = nn.Identity()
    first, _, _, last = objective.head
    expected = last(torch.tanh(first(plain(pair_batch()))))
    torch.testing.assert_close(objective(pair_batch()), expected)
    assert first.weight.shape == (5, 4 * D) and last.weight.shape == (N_LABELS, 5)


def test_of_a_pair_read_together_the_summaries_are_those_of_its_own_states():
    torch.manual_seed(0)
    model = BiLSTMAttention(V, 6, D, 1)
    objective, pairs = Classification(model, N_LABELS, dropout=0.0, pairs=True).eval(), pair_batch()
    one, other = model.read_pair(pairs.input_ids, pairs.lengths, pairs.other_ids, pairs.other_lengths)
    u = torch.stack([states[:length].amax(dim=0) for states, length in zip(one, pairs.lengths, strict=True)])
    v = torch.stack([states[:length].amax(dim=0) for states, length in zip(other, pairs.other_lengths, strict=True)])
    torch.testing.assert_close(objective(pairs), objective.head(torch.cat([u, v, abs(u - v), u * v], dim=1)))
    objective.train().loss(pairs, None, 0)[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())


def test_attention_between_sentences_is_refused_for_single_ones():
    with pytest.raises(UsageError, match=r"BiLSTMAttention reads pairs of sentences; take recipe=encoders/bilstm"):
        Classification(BiLSTMAttention(V, 6, D, 1), N_LABELS, dropout=0.0)


def test_the_mean_and_the_first_tokens_state_leave_padding_out():
    hidden = torch.randn(3, 7, D, generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(LENGTHS):
        states = hidden[row, :length]
        torch.testing.assert_close(pool(hidden, LENGTHS, "mean")[row], states.sum(dim=0) / length)
        torch.testing.assert_close(pool(hidden, LENGTHS, "max")[row], states.max(dim=0).values)
        assert torch.equal(pool(hidden, LENGTHS, "token")[row], states[0])


def test_the_last_states_are_those_that_an_lstm_returns():
    torch.manual_seed(0)
    lstm = BidirectionalLSTM(5, D)
    inputs = torch.randn(3, 7, 5)
    found = pool(lstm(inputs, LENGTHS), LENGTHS, "last")
    for row, length in enumerate(LENGTHS):
        alone = inputs[row : row + 1, :length]
        last = [layer(words)[1][0] for layer, words in ((lstm.forth[0], alone), (lstm.back[0], alone.flip(1)))]
        torch.testing.assert_close(found[row], torch.cat(last).flatten())


@pytest.mark.parametrize("pooling", ["mean", "token", "last"])
@pytest.mark.parametrize("name", ["bilstm", "elmo", "t5", "bert"])
def test_each_pooling_reaches_what_it_depends_on(name, pooling):
    torch.manual_seed(0)
    if name in ("t5", "bert") and pooling == "last":
        with pytest.raises(
            UsageError, match=r"(T5Encoder|BERT) has no last states of two directions; write pooling=max"
        ):
            Classification(MODELS[name](), N_LABELS, dropout=0.0, pooling=pooling)
        return
    objective = Classification(MODELS[name](), N_LABELS, dropout=0.0, pooling=pooling)
    objective.loss(batch(), None, 0)[0].backward()
    trained = {n: p for n, p in objective.named_parameters() if p.requires_grad}
    assert {n.split(".")[1] for n, _ in objective.named_parameters() if n not in trained} == (
        {"pooler"} if name == "bert" else set()
    )
    unreached = {n for n, p in trained.items() if p.grad is None or not p.grad.any()}
    # a token that stands first has nothing before it that the forward direction could remember
    recurrent = name in ("bilstm", "elmo")
    assert unreached == ({"model.layers.forth.0.weight_hh_l0"} if pooling == "token" and recurrent else set())
    logits = objective.head(pool(states_of(objective.model, *batch()[:2]), LENGTHS, pooling))
    torch.testing.assert_close(objective(batch()), logits)


@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("name", LEFT_TO_RIGHT)
def test_a_left_to_right_model_is_summed_up_by_all_its_positions(name, pooling):
    """Each sequence as if it stood alone; in a pair both orders are added up."""
    torch.manual_seed(0)
    objective = Classification(MODELS[name](), N_LABELS, dropout=0.0, pairs=True, pooling=pooling).eval()
    expected = torch.zeros(3, D)
    for ids, lengths in ((batch().input_ids, LENGTHS), (pair_batch().other_ids, pair_batch().other_lengths)):
        for row, length in enumerate(lengths):
            states = objective.model(ids[row : row + 1, :length])[0][0]  # (length, D)
            expected[row] += states.mean(dim=0) if pooling == "mean" else states.max(dim=0).values
    torch.testing.assert_close(objective(pair_batch()), objective.head(expected))
    objective.train().loss(pair_batch(), None, 0)[0].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())


@pytest.mark.parametrize("pooling", ["token", "last"])
@pytest.mark.parametrize("name", LEFT_TO_RIGHT)
def test_states_of_both_directions_are_not_asked_of_one(name, pooling):
    with pytest.raises(UsageError, match=rf"reads one way, and pooling={pooling} is for both; write pooling=max or "):
        Classification(MODELS[name](), N_LABELS, dropout=0.0, pooling=pooling)


@pytest.mark.parametrize("name", ["deep_averaging", "cnn"])
def test_a_pooling_is_refused_where_the_summary_is_the_models_own(name):
    with pytest.raises(UsageError, match="has a summary of its own; leave pooling=mean out"):
        Classification(MODELS[name](), N_LABELS, dropout=0.0, pooling="mean")
    with pytest.raises(UsageError, match="pooling=median is none of max, mean, token, last"):
        Classification(MODELS[name](), N_LABELS, dropout=0.0, pooling="median")


def test_the_class_predicted_is_the_most_probable():
    objective = classification("bilstm").eval()
    assert objective.predict(batch()).tolist() == objective(batch()).argmax(dim=1).tolist()


def test_models_that_give_no_states_are_refused_with_the_one_to_take():
    with pytest.raises(UsageError, match=r"T5 writes text.*take recipe=t5/t5_toy_encoder"):
        Classification(T5(**T5_SIZES), N_LABELS, dropout=0.0)
    with pytest.raises(UsageError, match=r"ELMo gives features.*take recipe=encoders/bilstm_elmo"):
        Classification(ELMO(words=WORDS), N_LABELS, dropout=0.0)
