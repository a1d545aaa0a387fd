from functools import partial

import pytest
import torch

from retable.models.elmo import ELMo
from retable.models.elmo_tagger import ELMoTagger
from retable.models.tagger import BiLSTMTagger

WORDS = ["<unk>", "<eos>", "dog", "barks", "zebra", "dogs"]
LENGTHS = torch.tensor([3, 5, 1])
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.5, filters=[(1, 3), (2, 4)], d_character=3, n_highway=1)


def ids() -> torch.Tensor:
    return torch.randint(len(WORDS), (3, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("d_predicate", [0, 3])
def test_without_the_features_it_is_the_tagger(d_predicate):
    """Where the mixture is scaled by 0; the predicate's vector comes after the features."""
    torch.manual_seed(0)
    settings = {"filters": [(1, 2), (3, 4)], "d_model": 8, "n_layers": 1, "dropout": 0.0, "d_predicate": d_predicate}
    given, plain = ELMoTagger(4, WORDS, ELMO, 5, 3, **settings), BiLSTMTagger(4, WORDS, 5, 3, **settings)
    torch.nn.init.zeros_(given.mix.gamma)
    weights, own = given.layers.state_dict(), plain.input.d_output
    for name in weights:
        if "weight_ih" in name:
            weights[name] = torch.cat([weights[name][:, :own], weights[name][:, own + 8 :]], dim=1)
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    predicates = torch.tensor([2, 4, 0]) if d_predicate else None
    if d_predicate:
        plain.predicate.load_state_dict(given.predicate.state_dict())
        assert not torch.equal(given(ids(), LENGTHS, predicates), given(ids(), LENGTHS, predicates * 0 + 1))
    torch.testing.assert_close(given(ids(), LENGTHS, predicates), plain(ids(), LENGTHS, predicates))
