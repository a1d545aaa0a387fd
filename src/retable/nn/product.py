"""Matrix products in fp32 by oneDNN, on processors whose vendor MKL, torch's choice for them, doesn't serve well.

Two cores of AMD's Zen 5 reach 190 GFLOP/s by MKL and 430 by oneDNN (2,048 × 256 by 256 × 1,024; benchmarks/ratios.md).
It has the second matrix laid out in a way of its own, which pays from a few hundred rows on.

N rows, I inputs, O outputs.
"""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

ROWS = 256  # so many at least, and
PRODUCTS = 1 << 26  # so many of numbers: below, laying out and calling take longer than is won

Times: TypeAlias = Callable[..., Tensor]  # of rows, and of `out` if what it gives is to stand there


def laid_out(weight: Tensor, n_rows: int) -> Times:
    """What multiplies rows (N, I), about `n_rows` of them, with weightᵀ, of weight (O, I), which it lays out once.

    In bf16 or fp32, on a processor that torch has oneDNN for; without a gradient.
    """
    kept = torch.ops.mkldnn._reorder_linear_weight(weight, n_rows)

    def multiplied(rows: Tensor, out: Tensor | None = None) -> Tensor:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, kept, None, "none", [], "")
        return found if out is None else out.copy_(found)

    return multiplied


def times(weight: Tensor, rows: Tensor) -> Times:
    """The same, by the way that is faster for rows like these."""
    return laid_out(weight, len(rows)) if pays(rows, weight) else partial(_plain, weight)


def _plain(weight: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mm(rows, weight.mT, out=out)


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """(N, O): rows (N, I) times weightᵀ, of weight (O, I), by that way."""
    return times(weight, rows)(rows)


def pays(rows: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is faster in multiplying rows (N, I) with weightᵀ, of weight (O, I), and no gradient is asked."""
    if is_compiling() or (torch.is_grad_enabled() and (rows.requires_grad or weight.requires_grad)):
        return False
    large = len(rows) >= ROWS and len(rows) * weight.numel() >= PRODUCTS
    return large and rows.device.type == "cpu" and rows.dtype == weight.dtype == torch.float32 and _amd()


@cache
def _amd() -> bool:
    processor = Path("/proc/cpuinfo")
    return torch.backends.mkldnn.is_available() and processor.exists() and "AuthenticAMD" in processor.read_text()


class Linear(nn.Linear):
    """torch's, its products and those of its gradient by the way that is faster."""

    def forward(self, input: Tensor) -> Tensor:
        whole = type(self.weight) is nn.Parameter  # and not a process's share of it
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
        found = product(rows, weight)
        return found if bias is None else found.add_(bias)

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
    """Have the module's linear layers be `Linear`; weights, names and states stay as they are."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
