from functools import partial

import pytest
import torch

from retable.models.bilstm import BiLSTM
from retable.models.elmo_features import ELMoBiLSTM
from tests.contracts.model_cases import ELMO, IDS, LENGTHS, WORDS, D, E, T, V, spread


def on_elmo(**settings) -> ELMoBiLSTM:
    torch.manual_seed(0)
    model = ELMoBiLSTM(WORDS, partial(ELMO, dropout=0.5), E, D, n_layers=1, dropout=0.0, **settings)
    spread(model.mix)  # off the start, where all shares are equal
    return model


@pytest.mark.parametrize("layers", [None, [2], [1], [0], [0, 2]])
def test_features_are_the_weighted_layers(layers):
    model = on_elmo(layers=layers).eval()
    given = model.elmo.layers(IDS, LENGTHS)
    chosen = [given[k] for k in layers or (0, 1, 2)]
    shares = model.mix.weights.exp() / model.mix.weights.exp().sum()
    expected = model.mix.gamma * sum(share * layer for share, layer in zip(shares, chosen, strict=True))
    torch.testing.assert_close(model.features(IDS, LENGTHS), expected)


def test_it_is_the_sentence_encoder_over_words_beside_features():
    """The same BiLSTM, whose table holds what the one under test puts together."""
    model, row = on_elmo().eval(), torch.arange(T)[None] % V
    plain = BiLSTM(T, E + 8, D, 1, 0.0).eval()
    plain.layers.load_state_dict(model.layers.state_dict())
    with torch.no_grad():
        plain.embedding.weight.copy_(
            torch.cat([model.embedding(row), model.features(row, torch.tensor([T]))], dim=2)[0]
        )
    torch.testing.assert_close(model(row, torch.tensor([T])), plain(torch.arange(T)[None], torch.tensor([T])))
