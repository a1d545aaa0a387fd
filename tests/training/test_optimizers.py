import pytest
import torch

from retable.errors import UsageError
from retable.models.bert import BERT
from retable.models.gpt import GPT
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.training.optimizers import adamw, sgd


def objective() -> CausalLM:
    torch.manual_seed(0)
    return CausalLM(GPT(11, 8, 2, 2, 6, 0.0), 11, tie=True, bias=True, reduction="mean")


def test_adamw_decays_matrices_alone():
    module = objective()
    optimizer = adamw(module, lr=0.1, weight_decay=0.5, beta2=0.95)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # without a gradient, what moves is what is decayed
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


def test_a_model_without_layers_has_one_rate():
    with pytest.raises(UsageError, match=r"layer_decay needs a model with blocks.*write layer_decay=1"):
        adamw(torch.nn.Linear(2, 1), 0.1, 0.1, layer_decay=0.9)


def test_sgd_goes_down_the_gradient():
    module = torch.nn.Linear(2, 1)
    before = module.weight.detach().clone()
    module(torch.tensor([[3.0, -2.0]])).backward()
    sgd(module, lr=0.1).step()
    torch.testing.assert_close(module.weight.detach(), before - 0.1 * torch.tensor([[3.0, -2.0]]))
