"""Test properties that all models share."""

import copy

import pytest
import torch
from torch import nn

from retable.models.base import (
    BothDirections,
    Encoder,
    Estimated,
    Model,
    PairEncoder,
    SentenceRule,
    SequenceEncoder,
    SpanRanker,
    SpanRule,
    VectorModel,
    WindowModel,
)
from retable.models.residual_convolutional_encoder import ResidualConvolutionalEncoder
from retable.models.window_tagger import WindowTagger
from retable.training.weights import load_weights, save_weights
from tests.contracts.model_cases import (
    CASES,
    IDS,
    LENGTHS,
    OTHER_LENGTHS,
    OTHERS,
    B,
    T,
    V,
    build,
    built,
    flat,
    models,
    of_kind,
    read,
    spread,
)

WITHOUT_BATCHES = of_kind(VectorModel)
WITH_BATCHES = [name for name in CASES if name not in WITHOUT_BATCHES]
LOCAL = (PairEncoder, WindowTagger, ResidualConvolutionalEncoder)  # a state does not depend on all of its sequence
ONE_WAY = ("lstm tagger of 0", "lstm tagger of 1")
SEE_ALL = [name for name in of_kind(Encoder) if not isinstance(built(name), LOCAL) and name not in ONE_WAY]


@pytest.fixture(params=WITH_BATCHES)
def name(request) -> str:
    return request.param


def test_every_class_has_a_case():
    """Rules and estimated models have no gradients, and the mention ranker reads documents; other tests cover these."""
    others = (SpanRule, SentenceRule, SpanRanker, Estimated)
    missing = {kind for kind in vars(models).values() if not issubclass(kind, others)} - {
        type(built(name)) for name in CASES
    }
    assert {kind.__name__ for kind in missing} == {"Recurrent"}  # base class of Elman's network, GRU and LSTM


def test_neither_padding_nor_the_rows_next_to_it_change_a_row(name):
    model = built(name)
    together = read(model)
    for row in range(B):
        torch.testing.assert_close(read(model, [row])[0], together[row], atol=1e-4, rtol=1e-4)


def test_every_parameter_gets_a_gradient(name):
    model = build(name, dropout=0.1).train()
    if any(parameter.requires_grad for parameter in model.parameters()):
        flat(model).square().sum().backward()
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in model.named_parameters()}
    assert all(reached.values()), reached


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_statistics_are_saved_and_copied_and_they_give_the_same(name, tmp_path):
    model, other = built(name), copy.deepcopy(built(name))
    before = flat(model).detach().clone()
    statistics = {name for name in model.state_dict() if name.endswith(("mean", "variance"))}
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()} | statistics
    assert torch.equal(flat(other), before)
    spread(other)  # the copy has separate weights
    assert torch.equal(flat(model), before) and (not torch.equal(flat(other), before) or not model.state_dict())
    save_weights(model, tmp_path / "model.safetensors")
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(flat(other), before)


def test_pretrained_weights_and_vectors_are_loaded_into_the_models_own_memory(name):
    model = built(name)
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    for part in (*model.pretrained.values(), *filter(None, [model.input_embedding])):
        assert {weight.untyped_storage().data_ptr() for weight in part.parameters()} <= own


def test_dropout_acts_in_training_only(name):
    model, without = copy.deepcopy(built(name)), build(name)
    torch.testing.assert_close(flat(model), flat(without))
    model.train(), without.train()
    assert not torch.equal(flat(model), flat(model))
    # the first reads more context in evaluation; the second normalises over the batch in training
    if "transformer-xl" not in name and "normalised" not in name:
        torch.testing.assert_close(flat(without), flat(without.eval()))


@torch.no_grad()
def test_bf16_is_near_fp32(name, request):
    model = built(name)
    if any(isinstance(part, nn.RNNBase) for part in model.modules()):
        request.getfixturevalue("bf16")
    exact = flat(model)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = flat(model).float()
    assert (rounded - exact).square().mean().sqrt() < 0.1 * exact.std()


@pytest.mark.parametrize("name", SEE_ALL)
def test_every_position_of_an_encoder_sees_every_other(name):
    model, ids, lengths = built(name), IDS[:1], torch.tensor([T])
    states = model(ids, lengths)
    for t in range(T):
        changed = ids.clone()
        changed[:, t] = (changed[:, t] + 1) % V
        assert (model(changed, lengths) - states).abs().amax(dim=2).min() > 1e-6


@pytest.mark.parametrize("name", of_kind(Encoder, SequenceEncoder))
def test_rows_may_all_be_full(name):
    model: Model = built(name)
    whole = model(IDS, torch.full((B,), T))
    torch.testing.assert_close(model(IDS[2:3], LENGTHS[2:3])[0], whole[2], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "bilstm",
        "bilstm with attention",
        "elmo bilstm",
        "elmo tagger",
        "tagger",
        "cnn bilstm",
        "residual convolutions",
        "elmo",
    ],
)
def test_states_of_padding_are_zero_where_a_class_promises_it(name):
    model = built(name)
    if isinstance(model, PairEncoder):
        states = model.read_pair(IDS, LENGTHS, OTHERS, OTHER_LENGTHS)
    else:
        states = model.layers(IDS, LENGTHS) if isinstance(model, BothDirections) else [model(IDS, LENGTHS)]
    for k, each in enumerate(states):
        lengths = OTHER_LENGTHS if k and isinstance(model, PairEncoder) else LENGTHS
        assert not each[torch.arange(each.shape[1]) >= lengths[:, None]].any()


@pytest.mark.parametrize("name", of_kind(BothDirections))
def test_a_direction_sees_nothing_ahead(name):
    model = built(name)
    for backward in (False, True):
        states, _ = model(IDS, None, backward)
        for t in range(T):
            changed = IDS.clone()
            changed[:, t] = (changed[:, t] + 1) % V
            moved = (model(changed, None, backward)[0] - states).abs().amax(dim=2) > 1e-5
            assert (moved == (torch.arange(T) >= t)).all()


@pytest.mark.parametrize("name", of_kind(WindowModel))
def test_inputs_of_words_are_sums_of_rows_of_the_weights(name):
    """Compiled loops read and change these rows."""
    model = built(name)
    table, units, offsets, scales = model.inputs()
    assert table.data_ptr() in {parameter.data_ptr() for parameter in model.parameters()}
    assert len(offsets) == len(scales) + 1 == V + 1
    for word, vector in enumerate(model.vectors()):
        rows = units[offsets[word] : offsets[word + 1]]
        torch.testing.assert_close(scales[word] * table[rows].sum(dim=0), vector)


@pytest.mark.parametrize("name", WITHOUT_BATCHES)
def test_vectors_have_no_gradient(name):
    vectors = built(name).vectors()
    assert not vectors.requires_grad and vectors.shape == (V, built(name).d_model)
