"""Time and memory of one layer as powers of the sequence length n and the width d.

Table 1 of Vaswani et al. 2017 counts the operations of a layer: n·d² for a recurrent layer, k·n·d² for a convolution of
width k, and n²·d for self-attention, whose projections add n·d². The count for self-attention is a sum of two powers,
which has no single exponent. Therefore each measured exponent is reported next to an exponent that is fitted to the
operation counts at the same sizes.

Dimensions: B batch, T time (n), D d_model (d).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from retable.metrics.regression import fit_power
from retable.nn.transformer import CausalSelfAttention

HEAD_SIZE = 64


class Layer(NamedTuple):
    """A kind of layer.

    Attributes:
        build: a function that builds the layer from its width d.
        operations: a function that computes the number of multiplications for one sequence from n and d.
    """

    build: Callable[[int], nn.Module]
    operations: Callable[[int, int], int]
    keeps_scores: bool = False  # whether the layer stores its (n, n) attention scores, as unfused attention does


class CausalConvolution(nn.Conv1d):
    """A convolution over (B, T, D) that reads a position and the `width` − 1 positions before it."""

    def __init__(self, d_model: int, width: int):
        super().__init__(d_model, d_model, width)

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(F.pad(hidden.mT, (self.kernel_size[0] - 1, 0))).mT


def layers(kernel: int) -> dict[str, Layer]:
    """Map names to the layers to measure; `kernel` is the convolution's width."""

    def attention(d: int) -> nn.Module:
        return CausalSelfAttention(d, max(d // HEAD_SIZE, 1), dropout=0.0)

    def operations(n: int, d: int) -> int:
        return 4 * n * d**2 + 2 * n**2 * d

    return {
        "recurrent": Layer(lambda d: nn.LSTM(d, d, batch_first=True), lambda n, d: 8 * n * d**2),
        "convolutional": Layer(lambda d: CausalConvolution(d, kernel), lambda n, d: kernel * n * d**2),
        "self-attentive": Layer(attention, operations),
        "self-attentive with scores kept": Layer(attention, operations, keeps_scores=True),
    }


def measure(
    kernel: int,
    lengths: Sequence[int],
    width: int,
    widths: Sequence[int],
    length: int,
    batch_size: int,
    repeats: int,
    device: str,
) -> pd.DataFrame:
    """Measure time and memory of every layer at every size.

    Args:
        kernel: width of the convolution.
        lengths: values of the sequence length n to measure at a layer width d of `width`.
        widths: values of the layer width d to measure at a sequence length n of `length`.
        repeats: number of timed passes per size.
    Returns: one row per layer and size: the columns are layer, varied (length or width), length, width, operations, and
        the seconds and bytes that `cost` returns.
    """
    sizes = [("length", n, width) for n in lengths] + [("width", length, d) for d in widths]
    rows = []
    for name, layer in layers(kernel).items():
        for varied, n, d in sizes:
            module, inputs = layer.build(d).to(device), torch.randn(batch_size, n, d, device=device)
            with sdpa_kernel(SDPBackend.MATH) if layer.keeps_scores else nullcontext():
                seconds, n_bytes = cost(module, inputs, repeats)
            rows.append((name, varied, n, d, layer.operations(n, d), seconds, n_bytes))
    return pd.DataFrame(rows, columns=["layer", "varied", "length", "width", "operations", "seconds", "bytes"])


def cost(module: nn.Module, inputs: Tensor, repeats: int) -> tuple[float, int]:
    """Measure time and memory of a forward and backward pass.

    Returns: the time of the fastest of `repeats` passes after one warm-up, in seconds, and the number of bytes that the
        forward pass stores for the backward pass, without weights and inputs. On a CPU, the time is process time, which
        excludes the time of other programs.
    """
    inputs.requires_grad_()
    own = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), inputs)}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []  # keeps tensors in memory, so that no later tensor reuses an earlier tensor's address

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _output(module, inputs).sum().backward()
    clock = time.perf_counter if inputs.is_cuda else time.process_time
    seconds = []
    for _ in range(repeats):
        _wait(inputs.device)
        started = clock()
        _output(module, inputs).sum().backward()
        _wait(inputs.device)
        seconds.append(clock() - started)
    return min(seconds), sum(kept.values())


def exponents(rows: pd.DataFrame) -> dict[str, float]:
    """Fit the exponents with which operations, seconds and bytes grow with n and with d.

    Returns: exponents `<layer>/<varied>/<quantity>`. An exponent of seconds or bytes has a 95 % interval, whose ends
        are named `<exponent>_low` and `<exponent>_high`.
    """
    fitted: dict[str, float] = {}
    for (layer, varied), part in rows.groupby(["layer", "varied"], sort=False):
        for quantity in ("operations", "seconds", "bytes"):
            line = fit_power(part[varied], part[quantity])
            ends = {"": line.slope, "_low": line.low, "_high": line.high}
            ends = {"": line.slope} if quantity == "operations" else ends
            fitted |= {f"{layer}/{varied}/{quantity}{end}": value for end, value in ends.items()}
    return fitted


def _output(module: nn.Module, inputs: Tensor) -> Tensor:
    output = module(inputs)
    return output if isinstance(output, Tensor) else output[0]  # recurrent layers and attention also return a state


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
