"""Dropout (Srivastava et al. 2014) with fast random numbers on a CPU.

PyTorch draws random numbers one after the other. Drawing numbers for the attention weights of 16 × 8 heads × 128 × 128
takes 17 ms, a third of a step of a GPT with 6 layers of width 256 and dropout 0.1 (benchmarks/language_models.md). Here
torch draws only one seed per tensor; the random number of an element is a hash of the seed and the element's index. So
all random numbers can be computed in parallel. The random numbers are not stored, but computed again for the gradient.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

from retable.nn import fused


class Dropout(nn.Dropout):
    """`nn.Dropout` with the fast implementation of `drop`."""

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, self.p, self.training)


def drop(x: Tensor, rate: float, training: bool = True) -> Tensor:
    """Set each element of x to 0 with probability `rate`, independently, and divide all other elements by 1 − rate.

    Returns: a tensor of the shape of x, or x itself if `training` is false or the rate is 0.
    """
    if not training or rate == 0:
        return x
    if x.device.type != "cpu" or rate == 1 or is_compiling():
        return F.dropout(x, rate)
    return _Dropout.apply(x, rate, int(torch.randint(1 << 62, ())))


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, rate: float, seed: int) -> Tensor:
        ctx.drawn = seed, round(rate * 2**32), 1 / (1 - rate)
        return _dropped(x, *ctx.drawn)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None]:
        return _dropped(dy, *ctx.drawn), None, None


def _dropped(x: Tensor, seed: int, dropped: int, scale: float) -> Tensor:
    x = x.contiguous()
    if fused.COMPILED is not None and x.dtype in (torch.bfloat16, torch.float32):
        return fused.dropout(x, seed, dropped, scale)
    stays = torch.from_numpy(_numbers(x.numel(), seed) >= dropped)
    return torch.where(stays.view_as(x), x * scale, 0)


def _numbers(n: int, seed: int) -> np.ndarray:
    """Compute n random 32-bit numbers, the same as in fused.c."""
    places = np.arange(n, dtype=np.uint32)
    return _mixed(_mixed(places ^ np.uint32(seed & 0xFFFFFFFF)) + np.uint32(seed >> 32))


def _mixed(x: np.ndarray) -> np.ndarray:
    """Hash 32-bit numbers: each input bit affects half of the output (Wellons, "Prospecting for hash functions")."""
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return x ^ x >> 16
