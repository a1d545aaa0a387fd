from functools import partial

import pytest
import torch

from retable.models.elmo_tagger import ELMoTagger
from retable.models.tagger import BiLSTMTagger
from tests.contracts.model_cases import ELMO, IDS, LENGTHS, SPELT, D


@pytest.mark.parametrize("d_predicate", [0, 3])
def test_without_the_features_it_is_the_tagger(d_predicate):
    """Where the mixture is scaled by 0; the predicate's vector comes after the features."""
    torch.manual_seed(0)
    settings = SPELT | {"d_model": D, "n_layers": 1, "dropout": 0.0, "d_predicate": d_predicate}
    given, plain = ELMoTagger(4, elmo=partial(ELMO, dropout=0.5), **settings), BiLSTMTagger(4, **settings)
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
