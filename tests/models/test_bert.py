import numpy as np
import pytest
import torch
from torch import nn

from retable.models.bert import BERT
from tests.contracts.model_cases import BERTS, IDS, LENGTHS, SEGMENTS, B, D, H, T, build
from tests.nn import by_hand


@pytest.fixture(params=BERTS)
def model(request) -> BERT:
    return build(request.param)


def test_the_summary_is_that_of_all_states(model):
    widths = []
    hook = model.blocks[-1].expand.register_forward_pre_hook(lambda _, given: widths.append(given[0].shape[1]))
    found = model.summary(IDS, LENGTHS, SEGMENTS)
    hook.remove()
    torch.testing.assert_close(found, model.pool(model(IDS, LENGTHS, SEGMENTS)), atol=1e-5, rtol=1e-5)
    assert widths == [1]


def test_rotary_positions_turn_queries_and_keys():
    """Compared with a loop over queries and heads, without padding."""
    model = build("bert, rotary")
    assert not torch.allclose(model(IDS.flip(1)).flip(1), model(IDS), atol=1e-2)
    attention, hidden = model.blocks[0].attention, torch.randn(B, T, D)
    seen = (torch.arange(T) < LENGTHS[:, None])[:, None, None]
    found = attention(hidden, mask=seen, rotation=model.rotations[:, :T]).detach().numpy()
    p = by_hand.arrays(attention)
    for row, length in enumerate(LENGTHS.tolist()):
        x = hidden[row, :length].double().numpy()
        query = x @ p["query.weight"].T + p["query.bias"]
        key, value = np.split(x @ p["key_value.weight"].T + p["key_value.bias"], 2, axis=1)
        for t in range(length):
            mixed = []
            for head in np.split(np.arange(D), H):
                keys = [by_hand.turned(k, s) for s, k in enumerate(key[:, head])]
                of_query = by_hand.turned(query[t, head], t)
                mixed.append(by_hand.attention(of_query, keys, [*value[:, head]], (D // H) ** -0.5))
            expected = p["output.weight"] @ np.concatenate(mixed) + p["output.bias"]
            np.testing.assert_allclose(found[row, t], expected, atol=1e-4)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norms_have_the_epsilon_of_berts_code(norm):
    model = BERT(20, 16, 2, 2, max_length=8, dropout=0.0, norm=norm)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert {each.eps for each in norms} == {1e-12} and len(norms) == 5 + (norm == "pre")


def test_positions_that_begin_as_sinusoids_tell_distances():
    """The product of two positions depends on their distance, and they have the same variance as other initial
    weights.
    """
    torch.manual_seed(0)
    places = BERT(20, 64, 1, 2, max_length=50, dropout=0.0, sinusoids=True).positions.weight.detach()
    products = places @ places.mT
    for distance in (0, 1, 7):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert places.square().mean().sqrt().item() == pytest.approx(0.02)
