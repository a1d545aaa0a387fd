import torch

from retable.models.character_lstm import CharacterLSTM
from retable.models.recurrent import LSTM
from retable.nn.character_cnn import spell

WORDS = ["<unk>", "<eos>", "the", "cat", "cats", "sat", "catamaran"]
V, D, B, T = len(WORDS), 5, 3, 7
FILTERS = [(1, 4), (3, 6)]


def lstm(dropout: float = 0.0, seed: int = 0, words=WORDS) -> CharacterLSTM:
    torch.manual_seed(seed)
    return CharacterLSTM(words, 4, FILTERS, 1, D, 2, dropout, init_range=0.5)


def ids() -> torch.Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def test_it_is_an_lstm_on_the_composed_vectors_of_all_words():
    model, plain = lstm(), LSTM(V, D, 2, 0.0, init_range=0.5)
    plain.layers = model.layers
    before = torch.randn(2, 2, B, D).unbind()
    vectors = model.cnn(spell(WORDS, padding=3))
    expected = torch.func.functional_call(plain, {"embedding.weight": vectors}, (ids(), before))
    actual = model(ids(), before)
    torch.testing.assert_close(actual, expected)
    learnt = [*model.cnn.parameters()]
    slopes = [torch.autograd.grad(states.square().sum(), learnt, retain_graph=True) for states, _ in (actual, expected)]
    torch.testing.assert_close(*slopes)
