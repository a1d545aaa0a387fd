"""Test the networks of Lample et al. (2016) and of Ma and Hovy (2016): equations, initial weights and dropout."""

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from retable.models.character_bilstm import CharacterBiLSTM
from retable.models.cnn_bilstm import CNNBiLSTM
from retable.training.optimizers import momentum_sgd
from retable.training.schedules import inverse_decay
from tests.nn.by_hand import arrays
from tests.pipelines.recipes import composed

WORDS = ["<unk>", "<eos>", "the", "dog", "Dogs", "naïve", "a" * 60]
IDS, LENGTHS = torch.tensor([[1, 2, 4, 5, 1], [1, 6, 1, 0, 3]]), torch.tensor([5, 3])
SIZES = {"vocab_size": 4, "words": WORDS, "d_embedding": 5, "d_character": 3, "dropout": 0.5}


def lample(**settings) -> CharacterBiLSTM:
    torch.manual_seed(0)
    return CharacterBiLSTM(**SIZES | {"d_spelling": 2, "d_model": 4} | settings)


def ma_hovy(**settings) -> CNNBiLSTM:
    torch.manual_seed(0)
    return CNNBiLSTM(**SIZES | {"n_filters": 6, "window": 3, "d_model": 8} | settings)


def symbols(word: str) -> list[int]:
    """Return the symbols of a word's first 48 bytes."""
    return [byte + 1 for byte in word.encode()[:48]]


def test_lamples_states_are_those_of_each_word_read_from_both_ends():
    model = lample().eval()
    together = model(IDS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        words = []
        for i in IDS[row, :length].tolist():
            characters = model.characters(torch.tensor([symbols(WORDS[i])]))
            forth, back = model.spelling
            ends = forth(characters)[0, -1], back(characters.flip(1))[0, -1]
            words.append(torch.cat([model.input.embedding.weight[i if i < 4 else 0], *ends]))
        sentence = torch.stack(words)[None]
        forth, back = model.layers
        states = torch.cat([forth(sentence), back(sentence.flip(1)).flip(1)], dim=2)
        torch.testing.assert_close(together[row, :length], torch.tanh(model.hidden(states))[0])


def test_ma_and_hovys_characters_are_the_largest_values_of_each_filter():
    """A loop in NumPy over the windows of each word. Torch's bidirectional LSTM has the same states."""
    model = ma_hovy().eval()
    p = arrays(model)
    filters, bias = p["convolution.weight"], p["convolution.bias"]
    rows = []
    for word in WORDS:
        spelt = p["characters.weight"][[259, *symbols(word), 260, 261, 261, 261]]
        windows = [spelt[start : start + 3].T for start in range(len(spelt) - 2)]
        rows.append(np.tanh(np.max([(filters * window).sum(axis=(1, 2)) + bias for window in windows], axis=0)))
    spelling = torch.tensor(np.array(rows), dtype=torch.float32)
    words = torch.cat([model.input(IDS), spelling[IDS]], dim=2)
    theirs = nn.LSTM(11, 4, batch_first=True, bidirectional=True)
    weights = [dict(part[0].named_parameters()) for part in (model.layers.forth, model.layers.back)]
    theirs.load_state_dict(weights[0] | {f"{name}_reverse": weight for name, weight in weights[1].items()})
    for row, length in enumerate(LENGTHS.tolist()):
        expected = theirs(words[row : row + 1, :length])[0][0]
        torch.testing.assert_close(model(IDS, LENGTHS)[row, :length], expected)


def test_initial_weights_are_those_of_ma_and_hovys_section_3_1():
    torch.manual_seed(0)
    words = [f"w{i}" for i in range(3000)]
    model = CNNBiLSTM(3000, words, 100, 30, 30, 3, 400, 0.5)
    head = nn.Linear(400, 17)
    head.apply(model.initialise)
    lstm = model.layers.back[0]
    for weight, variance in (
        (model.input.embedding.weight, 1 / 100), (model.characters.weight[:261], 1 / 30), (head.weight, 2 / 417),
        *((gate, 2 / 330) for gate in lstm.weight_ih_l0.split(200)),
        *((gate, 2 / 400) for gate in lstm.weight_hh_l0.split(200)),
    ):  # fmt: skip
        bound = (3 * variance) ** 0.5
        assert 0.99 * bound < weight.abs().max() <= bound and weight.var().item() == pytest.approx(variance, rel=0.05)
    bias = lstm.bias_ih_l0 + lstm.bias_hh_l0
    assert (bias[200:400] == 1).all() and not bias[:200].any() and not bias[400:].any()
    assert not head.bias.any() and not model.convolution.bias.any() and not model.characters.weight[261].any()


@pytest.mark.parametrize("make", [lample, ma_hovy])
def test_without_characters_only_the_word_counts(make):
    """Words without a vector of their own differ only in their characters."""
    ids, other = torch.tensor([[1, 4, 1]]), torch.tensor([[1, 5, 1]])
    for setting, same in (({}, False), ({"d_spelling": 0} if make is lample else {"n_filters": 0}, True)):
        model = make(**setting).eval()
        assert torch.equal(model(ids, LENGTHS[1:]), model(other, LENGTHS[1:])) == same


def test_the_same_word_loses_other_characters_each_time():
    """Ma and Hovy drop parts of the characters of each word separately, Lample et al. only parts of the input."""
    torch.manual_seed(0)
    ids = torch.tensor([[3] * 20])
    model = ma_hovy(dropout=0.9)
    assert len(model._spelt(ids)[0].unique(dim=0)) > 10
    assert len(model.eval()._spelt(ids)[0].unique(dim=0)) == 1
    assert len(lample(dropout=0.9)._spelt(ids)[0].unique(dim=0)) == 1


@pytest.mark.parametrize(
    ("recipe", "head", "batch"),
    [("lample_char_bilstm_crf", 0.0, 1), ("lample_bilstm_crf", 0.0, 1), ("ma_hovy_bilstm_cnn_crf", 0.5, 10),
     ("ma_hovy_bilstm", 0.5, 10)],
)  # fmt: skip
def test_recipes_have_the_settings_of_the_papers(recipe, head, batch):
    cfg = composed("finetune", recipe, "task=conll2003_ner")
    assert (cfg.model.dropout, cfg.head.dropout, cfg.clip_norm, cfg.batch_size) == (0.5, head, 5.0, batch)
    optimizer, schedule = instantiate(cfg.optimizer), instantiate(cfg.schedule)
    factors = [schedule(step, 1000.0, 100_000, []) for step in (0, 999, 1000, 50_999)]
    group = optimizer(nn.Linear(1, 1)).param_groups[0]
    if batch == 1:
        assert group["lr"] == 0.01 and group["momentum"] == 0 and factors == [1] * 4
    else:
        assert group["lr"] == 0.015 and group["momentum"] == 0.9 and not group["nesterov"]
        assert factors == [1, 1, 1 / 1.05, 1 / 3.5]


def test_classical_momentum_equals_a_loop():
    """v ← μ v − η g, θ ← θ + v, with a rate that falls after each epoch of two steps."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 1)
    optimizer = momentum_sgd(layer, 0.1, momentum=0.9)
    weight, velocity = layer.weight.detach().double().numpy().copy(), np.zeros((1, 3))
    for _ in range(10):
        optimizer.zero_grad()
        layer.weight.square().sum().backward()
        optimizer.step()
        velocity = 0.9 * velocity - 0.1 * 2 * weight
        weight = weight + velocity
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight, rtol=1e-4)
    assert [inverse_decay(step, 2.0, 99, [], 0.5) for step in range(6)] == [1, 1, 1 / 1.5, 1 / 1.5, 1 / 2, 1 / 2]
