"""Optimizers for the trained parameters of a module, some with separate settings for groups of parameters."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn, optim
from torch.distributed.tensor import DTensor, Replicate

from retable.core.errors import UsageError
from retable.core.settings import LearningRate, NonNegative, Positive, Rate


def adamw(
    module: nn.Module,
    lr: LearningRate,
    weight_decay: NonNegative,
    beta1: Rate = 0.9,
    beta2: Rate = 0.999,
    layer_decay: Positive = 1.0,
) -> optim.AdamW:
    """Return AdamW (Loshchilov and Hutter 2019) with weight decay for matrices, but not for biases and norms.

    layer_decay: factor between the learning rates of successive layers (Clark et al. 2020, appendix B, with 0.8).
        Layers after the last block have the learning rate `lr`. Each block has `layer_decay` times the rate of the
        block above it, and the embeddings have `layer_decay` times the rate of the lowest block.
    """
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    above = _layers_above(trained) if layer_decay != 1 else dict.fromkeys(trained, 0)
    groups = []
    for depth in sorted(set(above.values())):
        of_depth = [p for name, p in trained.items() if above[name] == depth]
        rate = {"lr": lr * layer_decay**depth}
        groups.append({"params": [p for p in of_depth if p.ndim >= 2], "weight_decay": weight_decay} | rate)
        groups.append({"params": [p for p in of_depth if p.ndim < 2], "weight_decay": 0.0} | rate)
    return optim.AdamW(groups, lr=lr, betas=(beta1, beta2), fused=True)


def _layers_above(names: Iterable[str]) -> dict[str, int]:
    """Count the layers above each parameter: 0 for the head's parameters, and the highest number for embeddings.

    The parameters must be in the order from input to output. UsageError is raised unless the model has exactly one
    stack of blocks.
    """
    matches = {name: match for name in names if (match := re.search(r"^(.*)\bblocks\.(\d+)\.", name))}
    if len({match[1] for match in matches.values()}) != 1:
        raise UsageError(
            "layer_decay needs a model with one stack of blocks, such as recipe=bert/bert or transformer/gpt; write "
            "layer_decay=1"
        )
    blocks = {name: int(match[2]) for name, match in matches.items()}
    above, n_layers = {}, max(blocks.values()) + 1
    reached = 0
    for name in names:
        reached = blocks[name] + 1 if name in blocks else n_layers + 1 if reached else 0
        above[name] = n_layers + 1 - reached
    return above


def sgd(module: nn.Module, lr: LearningRate, weight_decay: NonNegative = 0.0, momentum: Rate = 0.0) -> optim.SGD:
    """Return SGD, plain or with Nesterov momentum, with the same weight decay for all weights."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    fused = not any(isinstance(p, DTensor) for p in parameters)  # torch's fused SGD does not support sharded weights
    nesterov = momentum > 0
    return optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, fused=fused)


def momentum_sgd(module: nn.Module, lr: LearningRate, momentum: Rate) -> optim.SGD:
    """Return SGD with classical momentum (Polyak 1964): v ← momentum · v + gradient, θ ← θ − lr · v."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    return optim.SGD(parameters, lr=lr, momentum=momentum)


def adagrad(module: nn.Module, lr: LearningRate, initial: Positive = 1.0) -> optim.Adagrad:
    """Return AdaGrad (Duchi et al. 2011); the sums of squares are initialised to `initial`, as in GloVe's code."""
    return optim.Adagrad(
        (p for p in module.parameters() if p.requires_grad), lr=lr, initial_accumulator_value=initial, eps=0.0
    )


def adagrad_l2(module: nn.Module, lr: LearningRate, weight_decay: NonNegative, eps: Positive = 1e-10) -> optim.Adagrad:
    """Return AdaGrad with the penalty ½ · weight_decay · ‖θ‖² added to the loss; θ are all weights, also embeddings.

    The sums of squares start at 0, and `eps` is added to the square root of each sum. The authors of the deep averaging
    network use eps = 1e-3 (miyyer/dan, util/adagrad.py).
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    fused = all(p.device.type == "cpu" and not isinstance(p, DTensor) for p in parameters)
    return optim.Adagrad(parameters, lr=lr, weight_decay=weight_decay, eps=eps, fused=fused)


def adadelta(
    module: nn.Module, lr: LearningRate, rho: Rate, eps: Positive, max_norm: Positive | None = None
) -> optim.Adadelta:
    """Return Adadelta (Zeiler 2012); each step is multiplied by `lr`.

    max_norm: maximum L2 norm of the rows of the last linear layer. After each step, rows with a higher norm are scaled
        down to `max_norm` (Hinton et al. 2012; Kim 2014, section 2.1, uses 3).
    """
    optimizer = optim.Adadelta((p for p in module.parameters() if p.requires_grad), lr=lr, rho=rho, eps=eps)
    if max_norm is not None:
        *_, last = (part for part in module.modules() if isinstance(part, nn.Linear))

        @torch.no_grad()
        def bound(*_: Any) -> None:
            last.weight.copy_(last.weight.renorm(2, 0, max_norm))

        optimizer.register_step_post_hook(bound)
    return optimizer


def adafactor(module: nn.Module, lr: LearningRate) -> optim.Adafactor:
    """Return Adafactor (Shazeer and Stern 2018).

    A step changes a weight by about min(lr, 1 / √step), relative to the weight's size. T5 uses lr = 1e-2.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    kind = SharedAdafactor if any(isinstance(p, DTensor) for p in parameters) else optim.Adafactor
    return kind(parameters, lr=lr)


class SharedAdafactor(optim.Adafactor):
    """Adafactor for sharded weights, with the statistics of whole weights instead of shards.

    The weights are gathered one after the other. Every process computes torch's step for the whole weight, and keeps
    its own shard of the result. Each process stores the whole optimizer state of every weight: one number per row and
    column of a matrix, or per element of a vector.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for share in group["params"]:
                if share.grad is not None:
                    self._step(share, share.grad, group)
        return loss

    def _step(self, share: DTensor, slope: DTensor, group: dict[str, Any]) -> None:
        whole = share.full_tensor()
        whole.grad = slope.full_tensor()
        one = optim.Adafactor([{**group, "params": [whole]}])
        one.state[whole] = self.state[share]
        one.step()
        everywhere = DTensor.from_local(whole, share.device_mesh, [Replicate()] * share.device_mesh.ndim)
        share.copy_(everywhere.redistribute(placements=share.placements))
