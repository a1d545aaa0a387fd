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
