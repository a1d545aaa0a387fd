from functools import partial

import pytest
import torch

from retable.models.bilstm import BiLSTM
from retable.models.elmo import ELMo
from retable.models.elmo_features import ELMoBiLSTM

WORDS = ["<unk>", "<eos>", "the", "cat", "cats", "sat", "catamaran"]
V, W, E, D, B, T = len(WORDS), 5, 6, 8, 4, 6
LENGTHS = torch.tensor([4, 1, 6, 3])  # in no order
MAKE = {
    "characters": partial(ELMo, d_model=W, d_cell=7, n_layers=2, dropout=0.5, filters=[(1, 4), (3, 6)], n_highway=1),
    "words": partial(ELMo, d_model=W, d_cell=7, n_layers=2, dropout=0.5, filters=None),
}


def on_elmo(kind: str = "characters", seed: int = 0, **settings) -> ELMoBiLSTM:
    torch.manual_seed(seed)
    model = ELMoBiLSTM(WORDS, MAKE[kind], E, D, n_layers=1, dropout=0.0, **settings)
    for parameter in model.mix.parameters():  # off the start, where all shares are equal
        torch.nn.init.normal_(parameter)
    return model


def ids() -> torch.Tensor:
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("layers", [None, [2], [1], [0], [0, 2]])
def test_features_are_the_weighted_layers(layers):
    model = on_elmo(layers=layers).eval()
    given = model.elmo.layers(ids(), LENGTHS)
    chosen = [given[k] for k in layers or (0, 1, 2)]
    shares = model.mix.weights.exp() / model.mix.weights.exp().sum()
    expected = model.mix.gamma * sum(share * layer for share, layer in zip(shares, chosen, strict=True))
    torch.testing.assert_close(model.features(ids(), LENGTHS), expected)


def test_it_is_the_sentence_encoder_over_words_beside_features():
    """The same BiLSTM, whose table holds what the one under test puts together."""
    model, row = on_elmo().eval(), torch.arange(T)[None] % V
    plain = BiLSTM(T, E + 2 * W, D, 1, 0.0).eval()
    plain.layers.load_state_dict(model.layers.state_dict())
    with torch.no_grad():
        plain.embedding.weight.copy_(
            torch.cat([model.embedding(row), model.features(row, torch.tensor([T]))], dim=2)[0]
        )
    torch.testing.assert_close(model(row, torch.tensor([T])), plain(torch.arange(T)[None], torch.tensor([T])))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_elmo_stays_and_a_tuned_one_moves(frozen):
    model = on_elmo(frozen=frozen).train()
    assert model.training and model.elmo.training != frozen
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=1.0)
    model(ids(), LENGTHS).pow(2).sum().backward()
    optimizer.step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {name for name in before if not (frozen and name.startswith("elmo."))}


def test_dropout_of_the_elmo_is_on_while_it_is_tuned_and_off_while_it_is_frozen():
    for frozen in (True, False):
        model = on_elmo(frozen=frozen).train()
        first, second = (model.features(ids(), LENGTHS) for _ in range(2))
        assert torch.equal(first, second) == frozen
