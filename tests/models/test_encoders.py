"""Test sentence encoders and taggers against loops written from the papers' equations, and against one another."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from retable.models.bilstm_attention import attend
from tests.contracts.model_cases import (
    ELMO,
    IDS,
    LENGTHS,
    OTHER_LENGTHS,
    OTHERS,
    SPELT,
    WORDS,
    D,
    T,
    V,
    build,
    models,
    spread,
)
from tests.nn.by_hand import arrays

ONE_HOT = {
    "bilstm": (lambda: models.OneHotBiLSTM(V, 8, 2), lambda: models.BiLSTM(V, 6, 8, 2)),
    "convolutions": (
        lambda: models.OneHotConvolutionalEncoder(V, (2, 3), 4),
        lambda: models.ConvolutionalEncoder(V, 6, (2, 3), 4),
    ),
    **{
        cell: tuple(
            partial(models.StackedRecurrent, V, 8, 3, 0.5, True, True, cell, one_hot=it) for it in (True, False)
        )
        for cell in ("elman", "gru", "lstm")
    },
}


def test_attention_equals_a_loop_over_pairs_of_words():
    generator = torch.Generator().manual_seed(2)
    similarity, states = (torch.randn(4, 5, n, generator=generator) for n in (5, D))
    attended = attend(similarity, states, OTHER_LENGTHS)
    for row, length in enumerate(OTHER_LENGTHS.tolist()):
        for word in range(5):
            weights = [float(similarity[row, word, i].exp()) for i in range(length)]
            expected = sum(w * states[row, i] for i, w in enumerate(weights)) / sum(weights)
            torch.testing.assert_close(attended[row, word], expected)


def test_each_sentence_is_read_again_beside_what_it_sees_in_the_other():
    attending, first = build("bilstm with attention"), models.BiLSTM(V, 6, D, 1).eval()
    first.load_state_dict({k: v for k, v in attending.state_dict().items() if not k.startswith("modelling.")})
    pair = IDS[3:, :3], torch.tensor([3]), OTHERS[3:, :4], torch.tensor([4])
    own, its = first(*pair[:2])[0], first(*pair[2:])[0]
    for a, b, states in zip((own, its), (its, own), attending.read_pair(*pair), strict=True):
        seen = torch.stack([torch.softmax(torch.stack([word @ w for w in b]), 0) @ b for word in a])
        expected = attending.modelling(torch.cat([a, seen], dim=1)[None], torch.tensor([len(a)]))
        torch.testing.assert_close(states, expected)


def test_convolutions_equal_a_loop_over_windows_and_features():
    model = build("convolutions")
    for high in (0.0, 9.0):
        for convolve in model.filters:
            convolve.bias.data += high
        encoded = model(IDS, LENGTHS)
        for row, length, features in zip(IDS.tolist(), LENGTHS.tolist(), encoded, strict=True):
            expected = []
            for convolve in model.filters:
                width = convolve.weight.shape[2]
                zeros = [torch.zeros(6)] * (width - 1)
                words = [*zeros, *model.embedding.weight[row[:length]], *zeros]
                for weight, bias in zip(convolve.weight, convolve.bias, strict=True):  # (6, width)
                    windows = (words[i : i + width] for i in range(len(words) - width + 1))
                    values = [sum(w @ x for w, x in zip(weight.T, window, strict=True)) + bias for window in windows]
                    expected.append(torch.stack(values).max().clamp(min=0))
            torch.testing.assert_close(features, torch.stack(expected))


@pytest.mark.parametrize("width", [1, 3, 5])
def test_residual_convolutions_equal_a_loop_over_places_and_windows(width):
    torch.manual_seed(0)
    model = models.ResidualConvolutionalEncoder(V, 6, D, 2, width, dropout=0.3).eval()
    spread(model)
    p = arrays(model)

    def convolve(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        zeros = [np.zeros_like(xs[0])] * (width // 2)
        padded, weight = [*zeros, *xs, *zeros], p[f"{name}.weight"]  # (out, in, width)
        return [p[f"{name}.bias"] + sum(weight[:, :, i] @ padded[t + i] for i in range(width)) for t in range(len(xs))]

    def activate(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
        return [np.maximum((x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + shift, 0) for x in xs]

    encoded = model(IDS, LENGTHS)
    for row, length, states in zip(IDS.tolist(), LENGTHS.tolist(), encoded.detach().numpy(), strict=True):
        hidden = convolve([p["embedding.weight"][token] for token in row[:length]], "enter")
        for block in (f"blocks.{i}" for i in range(2)):
            inner = convolve(activate(hidden, f"{block}.norms.0"), f"{block}.convolutions.0")
            inner = convolve(activate(inner, f"{block}.norms.1"), f"{block}.convolutions.1")
            hidden = [x + y for x, y in zip(hidden, inner, strict=True)]
        np.testing.assert_allclose(states[:length], activate(hidden, "norm"), atol=1e-5)
        assert not states[length:].any()


@pytest.mark.parametrize("kind", ONE_HOT)
def test_on_one_hot_words_it_is_a_table_times_the_first_layers_weights(kind):
    """W e of a one-hot word is a column of W. So a table of width 6 with the weights W above it can replace the
    first layer.
    """
    torch.manual_seed(0)
    model, peer = (make().eval() for make in ONE_HOT[kind])
    weights = dict(peer.named_parameters())
    table = weights.pop("embedding.weight")  # (V, 6)
    for name, weight in weights.items():
        if name.endswith("0.weight_ih_l0"):
            weights[name] = weight @ table.T
        elif name.startswith("filters.") and name.endswith("weight"):  # (features, 6, width)
            weights[name] = torch.einsum("feh,ve->fvh", weight, table)
    assert weights.keys() == dict(model.named_parameters()).keys()
    given = (IDS,) if kind in ("elman", "gru", "lstm") else (IDS, LENGTHS)
    torch.testing.assert_close(torch.func.functional_call(model, weights, given), peer(*given))
    assert model.input_embedding is None


def on_elmo(**settings) -> Any:
    torch.manual_seed(0)
    model = models.ELMoBiLSTM(WORDS, partial(ELMO, dropout=0.5), 6, D, n_layers=1, dropout=0.0, **settings)
    spread(model.mix)  # far from the start, where all weights of the mix are equal
    return model


@pytest.mark.parametrize("layers", [None, [2], [1], [0], [0, 2]])
def test_features_are_the_weighted_layers(layers):
    model = on_elmo(layers=layers).eval()
    given = model.elmo.layers(IDS, LENGTHS)
    chosen = [given[k] for k in layers or (0, 1, 2)]
    shares = model.mix.weights.exp() / model.mix.weights.exp().sum()
    expected = model.mix.gamma * sum(share * layer for share, layer in zip(shares, chosen, strict=True))
    torch.testing.assert_close(model.features(IDS, LENGTHS), expected)


def test_with_features_it_is_the_sentence_encoder_over_words_beside_them():
    """Both have the same BiLSTM; the sentence encoder's table contains the concatenated inputs of the tagger."""
    model, row = on_elmo().eval(), torch.arange(T)[None] % V
    plain = models.BiLSTM(T, 6 + 8, D, 1, 0.0).eval()
    plain.layers.load_state_dict(model.layers.state_dict())
    with torch.no_grad():
        plain.embedding.weight.copy_(
            torch.cat([model.embedding(row), model.features(row, torch.tensor([T]))], dim=2)[0]
        )
    torch.testing.assert_close(model(row, torch.tensor([T])), plain(torch.arange(T)[None], torch.tensor([T])))


def tagger(**settings) -> Any:
    torch.manual_seed(0)
    return models.BiLSTMTagger(4, **SPELT, d_model=D, n_layers=2, dropout=0.0, **settings)


def test_without_characters_a_tagger_is_the_sentence_encoder():
    given, encoder = tagger(), models.BiLSTM(4, 5, D, n_layers=2, dropout=0.0)
    weights = given.layers.state_dict()
    weights |= {name: weights[name][:, :5] for name in ("forth.0.weight_ih_l0", "back.0.weight_ih_l0")}
    encoder.layers.load_state_dict(weights)
    encoder.embedding.weight = given.input_embedding.weight
    for convolution in given.input.cnn.filters:
        for parameter in convolution.parameters():
            torch.nn.init.zeros_(parameter)
    known = IDS.where(IDS < 4, 0)
    torch.testing.assert_close(given(IDS, LENGTHS), encoder(known, LENGTHS))


def test_the_indicator_tells_the_predicate_from_the_rest():
    given, plain = tagger(d_predicate=3), tagger()
    weights = {
        name: part[:, : plain.input.d_output] if "0.weight_ih" in name else part
        for name, part in given.layers.state_dict().items()
    }
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    predicates, marks = torch.tensor([2, 0, 3, 0]), given.predicate.embedding.weight
    assert not torch.equal(given(IDS, LENGTHS, predicates), given(IDS, LENGTHS, predicates + 1))
    torch.nn.init.zeros_(marks)
    torch.testing.assert_close(given(IDS, LENGTHS, predicates), plain(IDS, LENGTHS))
    with torch.no_grad():
        marks.copy_(torch.randn(2, 3))
    rows = marks[(torch.arange(T) == predicates[:, None]).long()]
    read = given.layers(torch.cat([given.input(IDS), rows], dim=2), LENGTHS)
    torch.testing.assert_close(given(IDS, LENGTHS, predicates), read)


@pytest.mark.parametrize("d_predicate", [0, 3])
def test_without_the_features_an_elmo_tagger_is_the_tagger(d_predicate):
    torch.manual_seed(0)
    settings = SPELT | {"d_model": D, "n_layers": 1, "dropout": 0.0, "d_predicate": d_predicate}
    given, plain = models.ELMoTagger(4, elmo=partial(ELMO, dropout=0.5), **settings), models.BiLSTMTagger(4, **settings)
    torch.nn.init.zeros_(given.mix.gamma)
    weights, own = given.layers.state_dict(), plain.input.d_output
    for name in weights:
        if "weight_ih" in name:
            weights[name] = torch.cat([weights[name][:, :own], weights[name][:, own + 8 :]], dim=1)
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    predicates = torch.tensor([2, 0, 4, 0]) if d_predicate else None
    if d_predicate:
        plain.predicate.load_state_dict(given.predicate.state_dict())
        assert not torch.equal(given(IDS, LENGTHS, predicates), given(IDS, LENGTHS, predicates * 0 + 1))
    torch.testing.assert_close(given(IDS, LENGTHS, predicates), plain(IDS, LENGTHS, predicates))


@pytest.mark.parametrize("window", [1, 3, 5, 7])
def test_a_window_tagger_equals_a_loop_over_words_and_their_windows(window):
    """Collobert et al. 2011, equations 5 to 7: HardTanh(M [w_{t−d} … w_{t+d}] + b), with PADDING beyond both ends.

    After the end of each row, words are random.
    """
    torch.manual_seed(0)
    given = models.WindowTagger(4, **SPELT, window=window, d_model=D, dropout=0.0)
    with torch.no_grad():
        given.convolution.weight.mul_(5)  # large weights, so that HardTanh clips some values
    words, states = given.input(IDS), given(IDS, LENGTHS)
    assert given.d_model == states.shape[2] == D
    matrix = given.convolution.weight.transpose(1, 2).flatten(1)  # (D, window · I), the first word first
    reach, cut = window // 2, 0
    for row, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            places = range(t - reach, t + reach + 1)
            read = torch.cat([words[row, i] if 0 <= i < length else given.padding for i in places])
            linear = matrix @ read + given.convolution.bias
            expected = torch.tensor([max(-1.0, min(1.0, x)) for x in linear.tolist()])
            torch.testing.assert_close(states[row, t], expected)
            cut += int((expected.abs() == 1).sum())
    assert cut
