"""Matrix products in fp32 by oneDNN, for CPUs on which MKL, torch's default, is slow.

Two cores of AMD's Zen 5 reach 190 GFLOP/s with MKL and 430 GFLOP/s with oneDNN (2,048 × 256 by 256 × 1,024;
benchmarks/ratios.md). The library oneDNN copies the second matrix into its own layout. The time for this copy is worth
it if the first matrix has at least a few hundred rows.

N rows, I inputs, O outputs.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

ROWS = 256  # lowest number of rows for which oneDNN is faster, including the time for the copy and the call
PRODUCTS = 1 << 26  # lowest number of multiplications for which oneDNN is faster

Times: TypeAlias = Callable[..., Tensor]  # called with rows and, optionally, a tensor `out` for the result


def prepacked(weight: Tensor, n_rows: int) -> Times:
    """Return a function that multiplies rows (N, I) with weightᵀ, for weight (O, I) and N near `n_rows`.

    The weight is copied into oneDNN's layout once. The function works in bf16 or fp32 on a CPU with oneDNN, and does
    not support gradients.
    """
    kept = torch.ops.mkldnn._reorder_linear_weight(weight, n_rows)

    def multiplied(rows: Tensor, out: Tensor | None = None) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, kept, None, "none", [], "")
        return result if out is None else out.copy_(result)

    return multiplied


def times(weight: Tensor, rows: Tensor) -> Times:
    """Return the faster function (oneDNN's or torch's) for products with weightᵀ of as many rows as `rows`.

    The result for rows (N, I) and weight (O, I) is (N, O).
    """
    return prepacked(weight, len(rows)) if pays(rows, weight) else partial(_plain, weight)


def _plain(weight: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mm(rows, weight.mT, out=out)


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """Compute rows · weightᵀ (N, O) with oneDNN or torch, whichever is faster, for rows (N, I) and weight (O, I)."""
    return times(weight, rows)(rows)


def pays(rows: Tensor, weight: Tensor) -> bool:
    """Check that no gradient is needed and that oneDNN is faster for rows (N, I) times weightᵀ."""
    if is_compiling() or (torch.is_grad_enabled() and (rows.requires_grad or weight.requires_grad)):
        return False
    large = len(rows) >= ROWS and len(rows) * weight.numel() >= PRODUCTS
    return large and rows.device.type == "cpu" and rows.dtype == weight.dtype == torch.float32 and _amd()


@cache
def _amd() -> bool:
    processor = Path("/proc/cpuinfo")
    return torch.backends.mkldnn.is_available() and processor.exists() and "AuthenticAMD" in processor.read_text()


class Linear(nn.Linear):
    """torch's linear layer, but with products and their gradients by oneDNN where oneDNN is faster."""

    def forward(self, input: Tensor) -> Tensor:
        whole = type(self.weight) is nn.Parameter  # a process that has only a shard of the weight has no nn.Parameter
        rows = input.reshape(-1, input.shape[-1])
        with torch.no_grad():
            faster = whole and not torch.is_autocast_enabled(input.device.type) and pays(rows, self.weight)
        if not faster:
            return super().forward(input)
        return _Linear.apply(rows, self.weight, self.bias).view(*input.shape[:-1], self.out_features)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows, weight)
        result = product(rows, weight)
        return result if bias is None else result.add_(bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slopes: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(slopes, weight.mT) if of_rows else None,
            product(slopes.mT, rows.mT) if of_weight else None,
            slopes.sum(0) if of_bias else None,
        )


def use_faster_products(module: nn.Module) -> None:
    """Convert the module's linear layers to `Linear`, with the same weights, names and states."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
