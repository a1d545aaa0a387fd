"""Test the attention of translators to their source, against torch's attention and that of transformers."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from retable.core.errors import UsageError
from retable.data.batches import measured
from retable.data.pairs import pad, pairs_by_length
from retable.evaluation.source_attention import attends, attention_to_source, cross_attention
from retable.evaluation.translation import NatsPerToken, align
from retable.models.rnn_encoder_decoder import RNNEncoderDecoder
from retable.models.transformer_encoder_decoder import TransformerEncoderDecoder
from retable.objectives.translation import Translation
from tests.models import t5_cases

V, D, H, END = 13, 8, 2, 3
SOURCES = torch.tensor([[5, 6, 4, END, 0], [9, 9, 1, 2, END], [7, END, 0, 0, 0]])
LENGTHS, TARGETS = torch.tensor([4, 5, 2]), torch.tensor([[END, 8, 2], [END, 4, 4], [END, 1, 9]])


def translation(model) -> Translation:
    objective = Translation(model, V, 0.0, tie=False, bias=True)
    for parameter in objective.parameters():
        nn.init.normal_(parameter, std=0.7)
    return objective.eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_transformers_is_that_of_torchs_layer_with_the_same_weights(norm):
    torch.manual_seed(0)
    model = translation(TransformerEncoderDecoder(V, D, 2, H, 12, 20, 0.1, norm=norm)).model
    attention = model.decoder[-1].cross_attention
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([attention.query.weight, attention.key_value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key_value.bias]))
    inputs = {}
    for name in ("query", "key_value"):
        layer = getattr(attention, name)
        layer.register_forward_pre_hook(lambda layer, given, name=name: inputs.update({name: given[0]}))
    with torch.no_grad():
        weights = cross_attention(model, SOURCES, LENGTHS, TARGETS)
        padding = torch.arange(SOURCES.shape[1]) >= LENGTHS[:, None]
        queries, memory = inputs["query"], inputs["key_value"]
        _, expected = theirs(queries, memory, memory, key_padding_mask=padding, average_attn_weights=True)
    torch.testing.assert_close(weights, expected)
    assert (weights[2, :, 2:] == 0).all()


@pytest.mark.parametrize("kind", t5_cases.KINDS)
def test_a_t5s_is_that_of_transformers(kind):
    pytest.importorskip("transformers")
    model = t5_cases.build(kind)
    theirs = t5_cases.transformers_t5(model, kind, torch.randn(t5_cases.V, t5_cases.D))
    theirs.set_attn_implementation("eager")  # only this implementation returns its weights
    real = (torch.arange(SOURCES.shape[1]) < LENGTHS[:, None]).long()
    with torch.no_grad():
        weights = cross_attention(model, SOURCES, LENGTHS, TARGETS)
        whole = theirs(SOURCES, attention_mask=real, decoder_input_ids=TARGETS, output_attentions=True)
    torch.testing.assert_close(weights, whole.cross_attentions[-1].mean(dim=1), atol=1e-5, rtol=1e-4)


def test_each_step_has_a_row_where_a_model_looks_back():
    torch.manual_seed(0)
    source, target = [5, 6, 4, END], [8, 2, 9, END]
    transformer = translation(TransformerEncoderDecoder(V, D, 2, H, 12, 20, 0.1))
    weights = attention_to_source(transformer, source, target)
    assert weights.shape == (4, 4)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    sources, targets = torch.tensor([source]), torch.tensor([[END, *target[:-1]]])
    steps = cross_attention(transformer.model, sources, torch.tensor([4]), targets)
    np.testing.assert_allclose(weights, steps[0].detach(), rtol=1e-5)
    recurrent = translation(RNNEncoderDecoder(V, D, D, 1, 0.1, attention="additive"))
    np.testing.assert_allclose(attention_to_source(recurrent, source, target), align(recurrent, source, target))
    model = translation(RNNEncoderDecoder(V, D, D, 1, 0.1))
    assert not attends(model.model)
    with pytest.raises(UsageError, match="RNNEncoderDecoder has no attention to the source"):
        attention_to_source(model, [5, END], [8, END])


TEXTS = [[5, 6, 4, END], [7, END], [9, 9, 1, 2, 8, END]]
TRANSLATIONS = [[8, END], [9, 4, 4, 10, END], [END]]


@pytest.fixture
def objective() -> Translation:
    torch.manual_seed(0)
    return Translation(RNNEncoderDecoder(V, D, D, 1, 0.5, attention="additive"), V, 0.3, tie=True, bias=False).eval()


@pytest.mark.parametrize("max_tokens", [6, 12, 100])
def test_nats_are_of_all_target_tokens_whatever_the_batches(objective, max_tokens):
    total = 0.0
    for source, target in zip(TEXTS, TRANSLATIONS, strict=True):
        inputs = torch.tensor([[END, *target[:-1]]])
        hidden = objective.model(torch.tensor([source]), torch.tensor([len(source)]), inputs)
        log_probs = objective.head(hidden)[0].log_softmax(dim=1)
        total -= sum(log_probs[i, token].item() for i, token in enumerate(target))
    places = pairs_by_length(TEXTS, TRANSLATIONS, max_tokens)
    metrics = measured(NatsPerToken(places, partial(pad, TEXTS, TRANSLATIONS)), objective)
    assert metrics == {"loss": pytest.approx(total / 8, rel=1e-5)}


def test_an_alignment_has_a_row_a_target_token(objective):
    shares = align(objective, TEXTS[0], TRANSLATIONS[1])
    assert shares.shape == (5, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(align(objective, TEXTS[0], TRANSLATIONS[1]), shares)
