"""Test that packed layers give the same results as the layers, except for the last digits, and share their weights."""

import pytest
import torch
from torch import nn

from retable.generation.packed import PackedLinear, prepack
from retable.models.gpt import GPT
from retable.objectives.causal_lm import CausalLM

V, D, T = 53, 16, 9

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_scores_are_the_same(rows):
    torch.manual_seed(1)
    objective = CausalLM(GPT(V, D, 2, 2, T, 0.0), V, tie=True, bias=True, reduction="mean").eval()
    made = prepack(objective)
    assert sum(isinstance(layer, PackedLinear) for layer in made.modules()) == 9  # four in each block, and the softmax
    ids = torch.randint(V, (rows, T))
    with torch.inference_mode():
        (expected, _), (found, _) = (each.next_log_prob(ids, None) for each in (objective, made))
        torch.testing.assert_close(made.head(made.model(ids)[0]), objective.head(objective.model(ids)[0]))
    torch.testing.assert_close(found, expected)


def test_weights_are_shared_and_what_cannot_be_packed_is_left_as_it_is():
    layer = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, bias=False))
    made = prepack(layer)
    assert [id(p) for p in made.parameters()] == [id(p) for p in layer.parameters()]
    assert {type(part) for part in layer} == {nn.Linear} and {type(part) for part in made} == {PackedLinear}
    layer = nn.Linear(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert prepack(layer) is layer
    for dtype in (torch.float64, torch.bfloat16):
        layer = nn.Linear(4, 3).to(dtype)
        assert type(prepack(nn.Sequential(layer))[0]) is nn.Linear
