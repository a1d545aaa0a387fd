"""Test the published deep averaging network against its equations, and word dropout by counting."""

import pytest
import torch

from retable.models.dan import DAN, drop_words
from retable.objectives.classification import Classification

V, D = 9, 4
IDS = torch.tensor([[1, 3, 2, 3, 8, 1], [1, 2, 5, 1, 0, 0], [1, 4, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]])  # id 1 is a mark
LENGTHS = torch.tensor([6, 4, 3, 2])


@pytest.mark.parametrize("n_layers", [0, 3])
def test_it_is_relu_layers_on_the_mean_of_the_words(n_layers):
    torch.manual_seed(0)
    model = DAN(V, D, n_layers, word_dropout=0.3).eval()
    for row, length, given in zip(IDS, LENGTHS, model(IDS, LENGTHS), strict=True):
        words = row[1 : length - 1]
        expected = sum((model.embedding.weight[w] for w in words), torch.zeros(D)) / max(len(words), 1)
        for linear, *_ in model.layers:
            expected = (linear.weight @ expected + linear.bias).clamp(min=0)
        torch.testing.assert_close(given, expected)


def test_words_are_dropped_independently_and_a_sentence_without_words_is_kept_whole():
    torch.manual_seed(0)
    n, length, rate = 20_000, 3, 0.3
    words = torch.tensor([[True] * length + [False] * 2]).expand(n, -1)
    kept = drop_words(words, rate)
    assert not kept[:, length:].any() and kept.any(dim=1).all()
    # Binomial counts; if dropout would leave no word, all words are left.
    expected = [0.0, 3 * 0.7 * 0.3**2, 3 * 0.7**2 * 0.3, 0.7**3 + 0.3**3]
    shares = torch.bincount(kept.sum(dim=1), minlength=length + 1) / n
    torch.testing.assert_close(shares, torch.tensor(expected), atol=0.015, rtol=0)
    assert torch.equal(drop_words(words, 0.0), words)
    assert not drop_words(torch.zeros(2, 3, dtype=torch.bool), rate).any()  # sentences without words


def test_a_rate_of_zero_drops_no_word_whatever_is_drawn(monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([[0.0, 0.5]]))  # 0 is drawn about once in 2^24
    assert drop_words(torch.tensor([[True, True]]), 0.0).tolist() == [[True, True]]
    assert drop_words(torch.tensor([[True, True]]), 0.4).tolist() == [[False, True]]


def test_training_averages_the_words_that_are_left():
    torch.manual_seed(0)
    model = DAN(V, D, 0, word_dropout=0.5).train()
    a, b = model.embedding.weight[[3, 8]]
    vectors = model(torch.tensor([[1, 3, 8, 1]]).expand(200, -1), torch.full((200,), 4))
    distances = torch.stack([(vectors - each).abs().sum(dim=1) for each in (a, b, (a + b) / 2)])
    assert distances.min(dim=0).values.max() < 1e-6 and set(distances.argmin(dim=0).tolist()) == {0, 1, 2}


def test_all_weights_begin_uniform_also_the_softmaxs():
    torch.manual_seed(0)
    objective = Classification(DAN(500, 100, 2, 0.3), n_labels=100, dropout=0.0)
    for name, parameter in objective.named_parameters():
        assert 0.07 < parameter.abs().max() <= 0.08 and abs(parameter.mean()) < 0.02, name
    assert sum(p.numel() for p in objective.parameters()) == 500 * 100 + 2 * 100 * 101 + 100 * 101
