"""Test properties of every encoder-decoder; test_left_to_right.py tests the decoder."""

import pytest
import torch

from retable.models.base import EncoderDecoder
from tests.contracts.model_cases import IDS, LENGTHS, OTHERS, B, T, U, V, built, of_kind

NAMES = of_kind(EncoderDecoder)
INPUTS = IDS, LENGTHS, OTHERS


@pytest.mark.parametrize("name", NAMES)
def test_every_source_token_shows_in_every_step_and_no_padding(name):
    model = built(name)
    states = model(*INPUTS)
    for s in range(T):
        changed = IDS.clone()
        changed[:, s] = (changed[:, s] + 1) % V
        moved = (model(changed, LENGTHS, OTHERS) - states).abs().amax(dim=2)
        assert (moved[s < LENGTHS] > 1e-8).all() and (moved[s >= LENGTHS] < 1e-7).all()
    wider = torch.cat([IDS, IDS[:, :2]], dim=1)
    torch.testing.assert_close(model(wider, LENGTHS, OTHERS), states, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in NAMES if built(name).aligns])
def test_attention_is_shared_out_over_the_source(name):
    shares = built(name).align(*INPUTS)
    torch.testing.assert_close(shares.sum(dim=2), torch.ones(B, U))
    assert not shares.masked_select((torch.arange(T) >= LENGTHS[:, None])[:, None]).any()
