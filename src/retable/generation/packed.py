"""Linear layers with weights in oneDNN's layout, for faster decoding on CPUs.

In a decoding step, the product of 8 rows and a 10,000 × 256 matrix spends most of its time on rearranging the matrix.
If the matrix is rearranged once in advance, the product is twice as fast (benchmarks/language_models.md, Decoding).
With thousands of rows, as in batched prediction, the product with a rearranged matrix is not slower. On an AMD
processor, oneDNN is 2.3 times as fast as MKL, which torch uses for plain layers (benchmarks/finetuning.md).
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from retable.nn.product import Linear

Module = TypeVar("Module", bound=nn.Module)
_ROWS = 8  # number of input rows for which the layout is optimised; results are correct for any number


class PackedLinear(nn.Linear):
    """A linear layer with a second copy of its weights in oneDNN's layout; `prepack` makes the copy."""

    prepacked_weights: Tensor

    def forward(self, input: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(input, self.prepacked_weights, self.bias, "none", [], "")


def prepack(module: Module) -> Module:
    """Return a copy of the module with packed linear layers; the copy shares all weights and buffers with the module.

    The module is returned unchanged inside autocast, or if oneDNN is missing, or if a tensor of the module is sharded,
    bfloat16, or not on a CPU.
    """
    tensors = [*module.parameters(), *module.buffers()]
    plain = all(tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16 for tensor in tensors)
    if torch.is_autocast_enabled("cpu") or any(isinstance(part, FSDPModule) for part in module.modules()):
        plain = False
    if not (plain and torch.backends.mkldnn.is_available()):
        return module
    result = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    for layer in result.modules():
        if isinstance(layer, nn.Linear) and type(layer) in (nn.Linear, Linear) and layer.weight.dtype == torch.float32:
            layer.__class__ = PackedLinear
            layer.prepacked_weights = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _ROWS)
    return result
