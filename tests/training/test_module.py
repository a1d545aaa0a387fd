from itertools import product
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn

from retable.training.module import Training, step_seed
from retable.training.optimizers import sgd


def test_seeds_of_steps_are_distinct_and_known():
    seeds = {step_seed(*parts) for parts in product(range(10), range(500), range(4))}
    assert len(seeds) == 10 * 500 * 4
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    # These numbers must never change; otherwise earlier trainings could not be repeated.
    assert step_seed(1, 2, 3) == 733464669408481064


def test_seeds_do_not_run_parts_together():
    assert step_seed(1, 23) != step_seed(12, 3)
    assert step_seed(1, 0) != step_seed(0, 1)


class Drawing(nn.Module):
    """An objective whose loss is a random number."""

    def loss(self, batch: None, state: None, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        return torch.rand(()), {}, None


def draw(step: int, rank: int, parts: int, part: int) -> float:
    """Return the random draw of process `rank` in a part of a step."""
    training = Training(Drawing(), seed=1, max_steps=10)
    training.trainer = SimpleNamespace(
        global_rank=rank, global_step=step, accumulate_grad_batches=parts, log_every_n_steps=0
    )
    return float(training.training_step(None, step * parts + part))


@pytest.mark.parametrize("parts", [1, 2])
def test_each_process_draws_for_each_part_of_each_step_anew(parts):
    draws = [draw(step, rank, parts, part) for step in range(3) for rank in range(4) for part in range(parts)]
    assert len(set(draws)) == len(draws)


def test_gradients_are_clipped_as_they_are_and_not_as_the_loss_is_scaled():
    """In fp16, a fused optimizer itself divides by the scale in its step."""
    module = nn.Linear(1, 1, bias=False)
    training = Training(module, seed=1, max_steps=1, clip_norm=1.0)
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**16))
    training.trainer = SimpleNamespace(precision_plugin=plugin)
    optimizer, before = sgd(module, lr=1.0), module.weight.item()
    plugin.scaler.scale(module(torch.tensor([[3.0]])).sum()).backward()
    training.on_before_optimizer_step(optimizer)
    plugin.scaler.step(optimizer)
    assert before - module.weight.item() == pytest.approx(1.0, rel=1e-3)


def test_parts_draw_as_more_processes_would():
    assert [draw(3, rank, 2, part) for rank in range(2) for part in range(2)] == [draw(3, r, 1, 0) for r in range(4)]
