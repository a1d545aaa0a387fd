import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from retable.training.averaging import Average, non_monotone


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_non_monotone_is_the_rule_of_the_published_code(patience):
    generator = np.random.default_rng(patience)
    for _ in range(50):
        losses = (generator.normal(size=30).cumsum() - 0.3 * np.arange(30)).tolist()
        earlier: list[float] = []  # the losses that main.py of awd-lstm-lm keeps in best_val_loss
        for number, loss in enumerate(losses, 1):
            triggered = len(earlier) > patience and loss > min(earlier[:-patience])
            assert non_monotone(losses[:number], patience) == triggered
            earlier.append(loss)


def test_without_patience_the_first_rise_counts():
    assert [non_monotone([3, 2, 2, 2.5][:n], patience=0) for n in range(5)] == [False, False, False, False, True]


def module() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def test_the_average_is_the_mean_of_the_weights_since_it_began():
    linear, seen = module(), []
    average = Average(linear)
    for _ in range(10):
        with torch.no_grad():
            for parameter in linear.parameters():
                parameter.normal_()
        average.update()
        seen.append([parameter.detach().double().clone() for parameter in linear.parameters()])
        for tensor, *weights in zip(average.tensors.values(), *seen, strict=True):
            torch.testing.assert_close(tensor.double(), torch.stack(weights).mean(dim=0))
    assert average.steps == 10


def test_the_average_is_kept_in_full_precision():
    linear = module().bfloat16()
    average, steps = Average(linear), 1000
    for step in range(steps):
        with torch.no_grad():
            linear.weight.fill_(1 + step % 2 / 64)
        average.update()
    torch.testing.assert_close(average.tensors["weight"], torch.full((2, 3), 1 + 1 / 128))


def test_applied_for_a_while_and_for_good():
    linear = module()
    before = linear.weight.detach().clone()
    average = Average(linear)
    average.apply()  # no weights are averaged yet, so they stay
    assert torch.equal(linear.weight, before)
    for factor in (1, 3):
        with torch.no_grad():
            linear.weight.copy_(factor * before)
        average.update()
    with pytest.raises(RuntimeError, match="in between"), average.applied():
        torch.testing.assert_close(linear.weight.detach(), 2 * before)
        raise RuntimeError("in between")
    assert torch.equal(linear.weight, 3 * before)
    average.apply()
    torch.testing.assert_close(linear.weight.detach(), 2 * before)


def test_a_checkpoint_has_the_whole_of_what_processes_share():
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        mesh, linear = init_device_mesh("cpu", (1,)), module()
        expected = linear.weight.detach().clone()
        linear.weight = nn.Parameter(distribute_tensor(linear.weight, mesh, [Shard(0)]))
        average = Average(linear)
        average.update()
        whole = average.whole()
        assert type(whole["weight"]) is Tensor and torch.equal(whole["weight"], expected)
        later = Average(linear)
        later.take(7, {"weight": 3 * expected, "bias": whole["bias"]})
        assert later.steps == 7 and torch.equal(later.tensors["weight"].full_tensor(), 3 * expected)
        assert later.tensors["weight"].placements == (Shard(0),)
    finally:
        torch.distributed.destroy_process_group()
