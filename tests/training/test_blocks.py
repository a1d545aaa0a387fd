import copy

import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import TokenBatch
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.objectives.causal_lm import CausalLM
from retable.training.blocks import blocks_of, recompute_blocks

V, D, T = 11, 8, 6


def objective() -> CausalLM:
    torch.manual_seed(0)
    return CausalLM(GPT(V, D, 3, 2, T, dropout=0.3), V, tie=True, bias=False, reduction="mean")


def test_blocks_that_are_computed_twice_have_the_same_gradients():
    plain = objective()
    twice = copy.deepcopy(plain)
    recompute_blocks(twice.model)
    ids = torch.randint(V, (4, T + 1))
    saved = []
    for each in (plain, twice):
        torch.manual_seed(1)  # seed of the dropout
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):  # noqa: B023
            loss, _, _ = each.loss(TokenBatch(ids[:, :-1], ids[:, 1:], fresh=True), None, 0)
        loss.backward()
        saved.append(sum(kept))
    for ours, theirs in zip(twice.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=0)
    assert saved[1] < saved[0] / 3


def test_a_model_without_blocks_is_refused():
    whole = objective()
    assert blocks_of(whole) == list(whole.model.blocks)
    with pytest.raises(UsageError, match=r"LSTM has no blocks to recompute; write recompute=false"):
        recompute_blocks(LSTM(V, D, 1, 0.0, 0.1))
