from functools import partial

import torch

from retable.models.elmo import ELMo
from retable.models.elmo_tagger import ELMoTagger
from retable.models.tagger import BiLSTMTagger

WORDS = ["<unk>", "<eos>", "dog", "barks", "zebra", "dogs"]
LENGTHS = torch.tensor([3, 5, 1])
ELMO = partial(ELMo, d_model=4, d_cell=6, n_layers=2, dropout=0.5, filters=[(1, 3), (2, 4)], d_character=3, n_highway=1)


def tagger(dropout: float = 0.0, frozen: bool = True, d_predicate: int = 0) -> ELMoTagger:
    torch.manual_seed(0)
    return ELMoTagger(4, WORDS, ELMO, 5, 3, [(1, 2), (3, 4)], 8, 1, dropout, frozen=frozen, d_predicate=d_predicate)


def ids() -> torch.Tensor:
    return torch.randint(len(WORDS), (3, 5), generator=torch.Generator().manual_seed(1))


def test_without_the_features_it_is_the_tagger():
    """Where the mixture is scaled by 0, the LSTM reads what the tagger's own does."""
    given, plain = tagger(), BiLSTMTagger(4, WORDS, 5, 3, [(1, 2), (3, 4)], 8, 1, 0.0)
    torch.nn.init.zeros_(given.mix.gamma)
    weights = given.layers.state_dict()
    weights |= {name: weights[name][:, : plain.input.d_output] for name in weights if "weight_ih" in name}
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    torch.testing.assert_close(given(ids(), LENGTHS), plain(ids(), LENGTHS))


def test_with_an_indicator_it_is_the_role_labeller():
    """Again where the mixture is scaled by 0; the predicate's vector stands behind the features."""
    given, plain = tagger(d_predicate=3), BiLSTMTagger(4, WORDS, 5, 3, [(1, 2), (3, 4)], 8, 1, 0.0, d_predicate=3)
    torch.nn.init.zeros_(given.mix.gamma)
    weights, own = given.layers.state_dict(), plain.input.d_output
    for name in weights:
        if "weight_ih" in name:
            weights[name] = torch.cat([weights[name][:, :own], weights[name][:, -3:]], dim=1)
    plain.layers.load_state_dict(weights)
    plain.input.load_state_dict(given.input.state_dict())
    plain.predicate.load_state_dict(given.predicate.state_dict())
    predicates = torch.tensor([2, 4, 0])
    torch.testing.assert_close(given(ids(), LENGTHS, predicates), plain(ids(), LENGTHS, predicates))
    assert not torch.equal(given(ids(), LENGTHS, predicates), given(ids(), LENGTHS, predicates * 0 + 1))


def test_frozen_the_elmo_keeps_its_weights_and_draws_no_dropout():
    for frozen in (True, False):
        given = tagger(frozen=frozen).train()
        given(ids(), LENGTHS).square().sum().backward()
        grads = {name: p.grad is not None and bool(p.grad.any()) for name, p in given.named_parameters()}
        assert all(found for name, found in grads.items() if not name.startswith("elmo."))
        assert any(found for name, found in grads.items() if name.startswith("elmo.")) != frozen
        assert torch.equal(given(ids(), LENGTHS), given(ids(), LENGTHS)) == frozen
