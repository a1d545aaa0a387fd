import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.models.t5 import T5
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.training.optimizers import adadelta, adafactor, adagrad, adagrad_l2, adamw, sgd


def objective() -> CausalLM:
    torch.manual_seed(0)
    return CausalLM(GPT(11, 8, 2, 2, 6, 0.0), 11, tie=True, bias=True, reduction="mean")


def test_adamw_decays_matrices_alone():
    module = objective()
    optimizer = adamw(module, lr=0.1, weight_decay=0.5, beta2=0.95)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # without a gradient, only weight decay changes weights
    for name, parameter in module.named_parameters():
        matrix = name.endswith("weight") and "norm" not in name
        torch.testing.assert_close(parameter.detach(), before[name] * (0.95 if matrix else 1), msg=name)
    assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.95)}


def test_each_parameter_is_optimised_once_and_a_frozen_one_is_not():
    module = objective()
    module.model.positions.weight.requires_grad_(False)
    for optimizer in (adamw(module, 0.1, 0.1), sgd(module, 0.1)):
        held = [id(p) for group in optimizer.param_groups for p in group["params"]]
        assert sorted(held) == sorted(id(p) for p in module.parameters() if p.requires_grad)


def test_rates_fall_from_each_layer_to_the_one_below_it():
    module = Classification(BERT(11, 8, 3, 2, 6, 0.0, d_embedding=4), 2, 0.0)
    module.model.positions.weight.requires_grad_(False)
    optimizer = adamw(module, lr=1.0, weight_decay=0.5, layer_decay=0.5)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    expected = {"embedding": 1 / 16, "segments": 1 / 16, "embedding_norm": 1 / 16, "projection": 1 / 16}
    expected |= {"blocks.0": 1 / 8, "blocks.1": 1 / 4, "blocks.2": 1 / 2, "pooler": 1.0, "head": 1.0}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            (part,) = (part for part in expected if name.removeprefix("model.").startswith(f"{part}."))
            assert rates[id(parameter)] == expected[part], name
    assert id(module.model.positions.weight) not in rates
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert decayed == {id(p) for p in module.parameters() if p.ndim >= 2 and p.requires_grad}


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 1), T5(9, 4, 1, 1, 8, 0.0)])
def test_a_model_without_layers_or_with_two_stacks_of_them_has_one_rate(model):
    with pytest.raises(UsageError, match=r"layer_decay needs a model with one stack of blocks.*write layer_decay=1"):
        adamw(model, 0.1, 0.1, layer_decay=0.9)


def trained_alike(ours, theirs, n=5):
    """Check that both take steps with the same gradients and have the same weights after each step."""
    one, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    other.load_state_dict(one.state_dict())
    steps = ours(one), theirs(other)
    for seed in range(n):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        for module, step in zip((one, other), steps, strict=True):
            step.zero_grad()
            module(x).square().sum().backward()
            step.step()
        torch.testing.assert_close(one.weight, other.weight)
        torch.testing.assert_close(one.bias, other.bias)


class Nesterov:
    """v ← μv + g, w ← w − η(g + μv), where g is the gradient of the loss and λ/2 ‖w‖² (Sutskever et al. 2013, as in
    torch).
    """

    def __init__(self, module, lr, weight_decay, momentum):
        self.weights, self.settings = [*module.parameters()], (lr, weight_decay, momentum)
        self.velocities = [torch.zeros_like(weight) for weight in self.weights]

    def zero_grad(self):
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self):
        lr, decay, momentum = self.settings
        for weight, velocity in zip(self.weights, self.velocities, strict=True):
            slope = weight.grad + decay * weight
            velocity.mul_(momentum).add_(slope)
            weight -= lr * (slope + momentum * velocity)


@pytest.mark.parametrize(("decay", "momentum"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.9), (0.1, 0.99)])
def test_sgd_decays_all_weights_and_looks_ahead(decay, momentum):
    settings = {"lr": 0.01, "weight_decay": decay, "momentum": momentum}
    trained_alike(lambda module: sgd(module, **settings), lambda module: Nesterov(module, **settings))


def test_adagrad_begins_at_gloves_ones_and_adafactor_steps_at_its_rate():
    ones = {"lr": 0.1, "initial_accumulator_value": 1.0, "eps": 0.0}
    trained_alike(lambda m: adagrad(m, 0.1), lambda m: torch.optim.Adagrad(m.parameters(), **ones))
    trained_alike(lambda m: adafactor(m, 0.01), lambda m: torch.optim.Adafactor(m.parameters(), lr=0.01))


def test_adagrad_with_l2_equals_a_loop():
    """g ← g + ρθ, h ← h + g², θ ← θ − η g / (√h + ε), also for rows of a table that no word reads."""
    torch.manual_seed(0)
    lr, decay, eps = 0.005, 0.01, 1e-3
    table, layer = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 2)
    optimizer = adagrad_l2(torch.nn.ModuleList([table, layer]), lr, decay, eps)
    weights = [p.detach().numpy().astype(np.float64) for p in (table.weight, layer.weight, layer.bias)]
    sums = [np.zeros_like(weight) for weight in weights]
    unread = weights[0][4].copy()
    for step in range(20):
        ids = torch.tensor([step % 4, 1])
        optimizer.zero_grad()
        layer(table(ids)).square().sum().backward()
        optimizer.step()
        e, w, b = weights
        errors = 2 * (e[ids] @ w.T + b)  # (2, 2)
        slopes = [np.zeros_like(e), errors.T @ e[ids], errors.sum(axis=0)]
        np.add.at(slopes[0], ids.numpy(), errors @ w)
        for weight, total, slope in zip(weights, sums, slopes, strict=True):
            slope += decay * weight
            total += slope**2
            weight -= lr * slope / (np.sqrt(total) + eps)
    for parameter, weight in zip((table.weight, layer.weight, layer.bias), weights, strict=True):
        np.testing.assert_allclose(parameter.detach(), weight, rtol=1e-4, atol=1e-6)
    assert (np.abs(weights[0][4]) < np.abs(unread)).all()


def test_adadelta_bounds_the_rows_of_the_last_layer_only():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    norms = torch.tensor([[5.0], [3.5], [1.0], [9.0]])
    for layer in (module[0], module[2]):
        directions = torch.nn.functional.normalize(layer.weight.detach())
        layer.weight.data = directions * norms[: len(directions)]
    optimizer = adadelta(module, lr=1.0, rho=0.95, eps=1e-6, max_norm=3.0)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # without a gradient, only the bound changes weights
    torch.testing.assert_close(module[0].weight.norm(dim=1), torch.tensor([5.0, 3.5, 1.0, 9.0]))
    torch.testing.assert_close(module[2].weight.norm(dim=1), torch.tensor([3.0, 3.0, 1.0]))
    torch.testing.assert_close(torch.nn.functional.normalize(module[2].weight), directions)
    plain = adadelta(module, lr=1.0, rho=0.95, eps=1e-6)
    before = module[0].weight.detach().clone()
    plain.step()
    assert torch.equal(module[0].weight, before)


def test_adadelta_is_torchs():
    settings = {"lr": 1.0, "rho": 0.9, "eps": 1e-6}
    trained_alike(lambda m: adadelta(m, **settings), lambda m: torch.optim.Adadelta(m.parameters(), **settings))
