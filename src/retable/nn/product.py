"""Matrix products in fp32 by oneDNN, for CPUs on which MKL, torch's default, is slow.

One core of AMD's Zen 5 reaches 75 to 110 GFLOP/s with MKL and 200 to 250 with oneDNN (2,048 × 256 by 256 × 1,024;
benchmarks/language_models.md). Which library is faster is measured once per machine and number of threads, and kept in
the user's cache folder. Both libraries compute the same sums in another order, so results differ by rounding. oneDNN is
used only if it is much faster, so that the load of the machine rarely decides.

N rows, I inputs, O outputs.
"""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

ROWS = 256  # lowest number of rows for which oneDNN may be used
PRODUCTS = 1 << 26  # lowest number of multiplications for which oneDNN may be used
MUCH = 1.25  # oneDNN is used if it is at least this many times as fast; not yet measured on Intel's CPUs
_SIDE, _TIMES = 512, 25  # size of the measured matrices, number of measurements of which the fastest counts

Times: TypeAlias = Callable[..., Tensor]  # called with rows and, optionally, a tensor `out` for the result


def prepacked(weight: Tensor, n_rows: int) -> Times:
    """Return a function that multiplies rows (N, I) with weightᵀ, for weight (O, I) and N near `n_rows`.

    The weight is copied into oneDNN's layout once, which is worth it for many products of a few rows. The function
    works in bf16 or fp32 on a CPU with oneDNN, and does not support gradients.
    """
    return partial(_by_onednn, torch.ops.mkldnn._reorder_linear_weight(weight, n_rows))


def times(weight: Tensor, rows: Tensor) -> Times:
    """Return the faster function (oneDNN's or torch's) for products with weightᵀ of as many rows as `rows`.

    The result for rows (N, I) and weight (O, I) is (N, O).
    """
    return partial(_by_onednn if pays(rows, weight) else _by_torch, weight)


def _by_onednn(weight: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Multiply rows with weightᵀ; oneDNN also reads a plain or transposed weight, with the same result as prepacked."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")
    return result if out is None else out.copy_(result)


def _by_torch(weight: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mm(rows, weight.mT, out=out)


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """Compute rows · weightᵀ (N, O) with oneDNN or torch, whichever is faster, for rows (N, I) and weight (O, I)."""
    return times(weight, rows)(rows)


def pays(rows: Tensor, weight: Tensor) -> bool:
    """Check that no gradient is needed and that oneDNN is faster for rows (N, I) times weightᵀ."""
    if is_compiling() or (torch.is_grad_enabled() and (rows.requires_grad or weight.requires_grad)):
        return False
    large = len(rows) >= ROWS and len(rows) * weight.numel() >= PRODUCTS
    plain = rows.device.type == "cpu" and rows.dtype == weight.dtype == torch.float32
    return large and plain and onednn_is_faster(torch.get_num_threads())


@cache
def onednn_is_faster(threads: int) -> bool:
    """Check whether oneDNN's fp32 products are at least MUCH times as fast as torch's with the current threads.

    The first process on a machine measures it, and writes the times to a file in the user's cache folder. All later
    processes read this file, so they use the same library. If there is no folder, or it cannot be written, each process
    measures.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    cpu = dict(torch.cpu.get_capabilities())
    key = {"cpu": cpu, "torch": torch.__version__, "threads": threads, "dtype": "float32"}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "retable"
    seconds = _kept(folder / f"products-{digest}.json", key) if folder.is_absolute() else _measured()
    return seconds["torch"] >= MUCH * seconds["onednn"]


def _kept(path: Path, key: dict[str, object]) -> dict[str, float]:
    """Return the seconds per product in a file, or measure and write them; of several writers, the first one counts."""
    if (seconds := _read(path)) is not None:
        return seconds
    seconds = _measured()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, begun = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "w") as file:
                json.dump({"seconds": seconds, **key}, file)
            os.link(begun, path)
        except FileExistsError:
            if (first := _read(path)) is not None:  # another process was first
                return first
            os.replace(begun, path)  # the file is damaged
        except OSError:  # this file system has no hard links
            if (first := _read(path)) is not None:
                return first
            os.replace(begun, path)
        finally:
            Path(begun).unlink(missing_ok=True)
    return seconds


def _read(path: Path) -> dict[str, float] | None:
    """Return the seconds in a file, or None if the file is missing or damaged."""
    try:
        seconds = json.loads(path.read_text())["seconds"]
        return {name: float(seconds[name]) for name in ("torch", "onednn")}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _measured() -> dict[str, float]:
    """Measure the seconds of a product of square matrices with each library, in turns."""
    rows, weight = torch.ones(2, _SIDE, _SIDE, dtype=torch.float32, device="cpu")
    fastest = {"torch": float("inf"), "onednn": float("inf")}
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for _ in range(_TIMES):
            for name, multiplied in (("torch", _by_torch), ("onednn", _by_onednn)):
                start = time.perf_counter()
                multiplied(weight, rows)
                fastest[name] = min(fastest[name], time.perf_counter() - start)
    return fastest


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
