"""Linear layers whose weights are laid out beforehand, for oneDNN to multiply with.

A product of 8 rows, as in a step of decoding, with a matrix of 10,000 × 256 takes most of its time to lay the matrix
out; done once it is twice as fast (benchmarks/language_models.md, Decoding). With thousands of rows, as in prediction,
it is no slower, and on an AMD processor oneDNN is 2.3 times as fast as MKL, torch's choice for plain layers
(benchmarks/finetuning.md).
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from retable.nn.product import Linear

Module = TypeVar("Module", bound=nn.Module)
_ROWS = 8  # the layout is best for about so many, and right for any number


class PackedLinear(nn.Linear):
    """A linear layer with a second copy of its weights, in oneDNN's own layout: that of the time when it was packed."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")


def packed(module: Module) -> Module:
    """The module with its linear layers packed, and all its weights and buffers shared with the given one; as it is
    where they aren't in fp32, and whole, on a processor that torch has oneDNN for, or under autocast."""
    tensors = [*module.parameters(), *module.buffers()]
    plain = all(tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16 for tensor in tensors)
    if torch.is_autocast_enabled("cpu") or any(isinstance(part, FSDPModule) for part in module.modules()):
        plain = False
    if not (plain and torch.backends.mkldnn.is_available()):
        return module
    found = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    for layer in found.modules():
        if isinstance(layer, nn.Linear) and type(layer) in (nn.Linear, Linear) and layer.weight.dtype == torch.float32:
            layer.__class__ = PackedLinear
            layer.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
    return found
