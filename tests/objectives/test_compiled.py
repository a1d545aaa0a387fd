"""Test that the compiled loss of a training step is one graph, and equal to the loss that is computed in chunks."""

import pytest
import torch

from retable.data.corruption import Prefix, RandomSpans
from retable.data.streams import ShuffledWindows
from retable.nn import cross_entropy
from tests.contracts.objective_cases import CASES
from tests.training.resuming import TOKENS, T, corrupted, masked

SYSTEMS = {
    "CausalLM, tied": ShuffledWindows(TOKENS, batch_size=5, length=T, seed=1),
    "masked lm, next sentence": masked(next_sentence="next_sentence"),
    "text to text, t5 v1.0": corrupted(RandomSpans(0.25, 2.0)),
    "prefix lm": corrupted(Prefix()),
}


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def step(objective, loss, batch):
    """Return the loss and the gradients of a batch."""
    objective.zero_grad()
    value, _, _ = loss(batch, None, 0)
    value.backward()
    return value.detach(), [None if p.grad is None else p.grad.clone() for p in objective.parameters()]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_compiled_loss_is_one_graph_and_equals_the_loss_in_chunks(name, monkeypatch):
    """Losses and gradients agree within 1e-5 of their size in fp32; the graph has no break."""
    torch.manual_seed(0)
    objective = CASES[name].make(0.0).train()
    at_once = torch.compile(objective.loss, backend="aot_eager", fullgraph=True)  # raises an error at a graph break
    batch, other = (SYSTEMS[name].batch(number) for number in (0, 1))  # with different numbers of labels
    expected = step(objective, objective.loss, batch)
    torch.testing.assert_close(step(objective, at_once, batch), expected, rtol=1e-5, atol=1e-6)
    ours, theirs = step(objective, at_once, other), step(objective, objective.loss, other)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)

    monkeypatch.setattr(cross_entropy, "SHARE_OF_MEMORY", 0.0)  # no logits fit
    in_chunks = torch.compile(objective.loss, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    torch.testing.assert_close(step(objective, in_chunks, batch), expected, rtol=1e-5, atol=1e-6)
    (reason,) = torch._dynamo.utils.counters["graph_break"]  # the loss in chunks
    assert "torch.compiler.disable" in reason


def test_under_autocast_both_losses_round_alike():
    torch.manual_seed(0)
    objective = CASES["CausalLM, tied"].make(0.0).train()
    batch = SYSTEMS["CausalLM, tied"].batch(0)
    with torch.autocast("cpu", torch.bfloat16):
        ours, gradients = step(objective, torch.compile(objective.loss, backend="aot_eager"), batch)
        theirs, expected = step(objective, objective.loss, batch)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0)
    for own, other in zip(gradients, expected, strict=True):
        assert (own - other).norm() <= 0.05 * other.norm() + 1e-6


@pytest.mark.long
def test_compiled_for_this_processor_it_is_equal_too():
    torch.manual_seed(0)
    objective = CASES["CausalLM, tied"].make(0.0).train()
    batch = SYSTEMS["CausalLM, tied"].batch(0)
    expected = step(objective, objective.loss, batch)
    torch.testing.assert_close(step(objective, torch.compile(objective.loss), batch), expected, rtol=1e-5, atol=1e-6)
