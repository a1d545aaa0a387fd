from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from retable.evaluation.held_out import HeldOut, PretrainedObjective, mean_metrics


class Batch(NamedTuple):
    values: Tensor
    pairs: None = None
    share: float = 1.0


class Batches:
    steps_per_epoch = 4

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        return Batch(torch.tensor([step, step + 1.0]))


class Objective(nn.Module):
    """An objective with dropout, which must be off; random draws, which must be equal each time; and a state."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.dropout = nn.Dropout(0.5)

    def loss(self, batch, state, step):
        assert not torch.is_grad_enabled() and not self.training
        loss = self.dropout(self.weight * batch.values).mean()
        state = (state or 0) + 1
        return loss, {"loss": loss, "draw": torch.rand(()), "state": torch.tensor(state)}, state


def test_the_mean_over_one_epoch():
    metrics = mean_metrics(Objective(), Batches())
    assert metrics["loss"] == pytest.approx((0.5 + 1.5 + 2.5 + 3.5) / 4)
    assert metrics["state"] == 2.5


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_no_trace_and_repeats_itself(training):
    objective = Objective().train(training)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first = mean_metrics(objective, Batches())
    assert torch.equal(torch.rand(3), expected)
    assert objective.training == training and objective.dropout.training == training
    torch.manual_seed(8)
    assert mean_metrics(objective, Batches()) == first
    assert objective.weight.grad is None


def test_the_benchmark_names_its_split(tmp_path):
    asked = []

    def batches(split):
        asked.append(split)
        return Batches()

    system = PretrainedObjective(Objective(), batches)
    benchmark = HeldOut("outputs/tokenize/c/word_marked", split="validation")
    metrics = benchmark(system, tmp_path)
    assert metrics["held_out/loss"] == 2.0 and set(metrics) == {"held_out/loss", "held_out/draw", "held_out/state"}
    assert asked == ["validation"] and isinstance(system, benchmark.requires)
    assert [path.name for path in benchmark.inputs] == ["tokenizer.json", "validation.bin", "validation.units.npy"]
