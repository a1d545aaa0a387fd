import numpy as np
import torch
from torch import nn

from retable.models.character_lstm import CharacterLSTM
from retable.models.recurrent import LSTM
from retable.nn.character_cnn import PADDING, spell
from retable.objectives.causal_lm import CausalLM

WORDS = ["<unk>", "<eos>", "the", "cat", "cats", "sat", "catamaran"]
V, D, B, T = len(WORDS), 5, 3, 7
FILTERS = [(1, 4), (3, 6)]


def lstm(dropout: float = 0.0, seed: int = 0, words=WORDS) -> CharacterLSTM:
    torch.manual_seed(seed)
    return CharacterLSTM(words, 4, FILTERS, 1, D, 2, dropout, init_range=0.5)


def ids() -> torch.Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def test_it_is_an_lstm_on_the_composed_vectors_of_all_words():
    model = lstm()
    plain = LSTM(V, D, 2, 0.0, init_range=0.5)
    plain.embedding = nn.Embedding.from_pretrained(model.cnn(spell(WORDS, padding=3)).detach())
    plain.layers = model.layers
    before = torch.randn(2, 2, B, D).unbind()
    torch.testing.assert_close(model(ids(), before), plain(ids(), before))


def test_a_word_that_stands_often_gets_all_of_its_gradient():
    # The sum over the batch of the gradients that single rows give.
    model, batch = lstm(), ids()
    model(batch)[0].square().sum().backward()
    whole = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    for row in batch:
        model(row[None])[0].square().sum().backward()
    for name, p in model.named_parameters():
        assert whole[name].any(), name
        torch.testing.assert_close(p.grad, whole[name], msg=name)


def test_dropout_spares_the_first_layers_input_and_the_recurrent_connections():
    # With all of it dropped the first layer still reads the words, and each layer's state goes on through time.
    dropped, whole = lstm(dropout=1.0).train(), lstm()
    hidden, (after, _) = dropped(ids())
    _, (expected, _) = whole(ids())
    assert not hidden.any()
    torch.testing.assert_close(after[0], expected[0])
    assert not torch.allclose(after[1], expected[1])


def test_dropout_between_layers_needs_two_of_them(recwarn):
    assert CharacterLSTM(WORDS, 4, FILTERS, 1, D, 1, 0.5, init_range=0.5).layers.dropout == 0
    assert lstm(dropout=0.5).layers.dropout == 0.5 and not recwarn.list


def test_every_parameter_starts_uniform_about_its_centre():
    torch.manual_seed(0)
    model = CharacterLSTM(WORDS, 15, [(1, 25), (2, 50)], 2, 64, 2, 0.0, init_range=0.05)
    head = CausalLM(model, V, tie=False, bias=True, reduction="mean").head
    for name, parameter in [*model.named_parameters(), *head.named_parameters()]:
        centre = -2.0 if name.endswith("gate.bias") else 0.0
        assert 0.035 < (parameter - centre).abs().max() <= 0.0501, name
        assert abs((parameter - centre).mean()) < 5 * 0.05 / (3 * parameter.numel()) ** 0.5, name
    assert not model.cnn.characters.weight[PADDING].any()


def test_the_padding_stays_zero_under_training():
    objective = CausalLM(lstm(), V, tie=False, bias=True, reduction="mean")
    optimizer = torch.optim.SGD(objective.parameters(), lr=1.0)
    (-objective.log_prob(ids(), ids())[0].mean()).backward()
    optimizer.step()
    assert not objective.model.cnn.characters.weight[PADDING].any()


def test_words_that_are_spelt_alike_in_part_share_what_is_learnt():
    # "cats" and "cat" differ less than "the" and "cat" under random filters, as no table of words would have it.
    model = CharacterLSTM(WORDS, 15, [(w, 25) for w in (1, 2, 3)], 0, D, 1, 0.0, init_range=0.05)
    vectors = model.cnn(model._spelling).detach()
    the, cat, cats = (vectors[WORDS.index(word)] for word in ("the", "cat", "cats"))
    assert np.linalg.norm(cats - cat) < np.linalg.norm(the - cat)
