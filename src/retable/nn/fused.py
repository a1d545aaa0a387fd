"""Python bindings of fused.c: element-wise operations on a CPU, mostly in bf16, in one pass over memory.

The file fused.c is compiled when the package is installed, if there is a C compiler. Without a compiled file,
`COMPILED` is None, `serves` returns False, and torch's own operations are used; their results differ by rounding. On a
GPU, torch's operations are always used. In fp32, torch's operations are used for everything but dropout.
"""

import ctypes
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.compiler import is_compiling

MOST = 4096  # maximum number of scores per query for `AttentionWeights`


def _compiled() -> ctypes.CDLL | None:
    spec = find_spec("retable.nn._fused")
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)
    pointer, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.cross_entropy.argtypes = [pointer, pointer, pointer, number, number, pointer, pointer]
    library.column_sums.argtypes = [pointer, pointer, number, number, pointer]
    library.gelu.argtypes = [pointer, pointer, number, flag]
    library.gelu_slopes.argtypes = [pointer, pointer, pointer, number, flag]
    library.dropout.argtypes = [pointer, pointer, number, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float, flag]
    library.attention_weights.argtypes = [pointer, pointer, ctypes.c_int64 * 3, ctypes.c_float, *[number] * 4]
    library.attention_slopes.argtypes = [pointer, pointer, ctypes.c_float, number, number]
    library.rms_norm.argtypes = [*[pointer] * 4, ctypes.c_float, number, number]
    library.rms_norm_slopes.argtypes = [*[pointer] * 6, number, number]
    library.lstm_step.argtypes = [*[pointer] * 6, number, number]
    library.lstm_step_slopes.argtypes = [*[pointer] * 6, number, number]
    return library


COMPILED = _compiled()


def serves(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether fused.c has operations for this device and data type.

    The result is False within `torch.compile`, which fuses operations itself.
    """
    return COMPILED is not None and device.type == "cpu" and dtype == torch.bfloat16 and not is_compiling()


def cross_entropy_(logits: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return −log softmax(logits + bias)[label], in nats, and the softmax's denominators, (N,) each in fp32.

    bias (V,) is in fp32; labels are (N,). The logits, bf16 (N, V), are overwritten: the new values are the gradients of
    the losses, multiplied by the denominators.
    """
    assert COMPILED is not None and logits.is_contiguous()
    bias, labels = None if bias is None else bias.float().contiguous(), labels.contiguous()
    losses, totals = torch.empty(2, len(logits)).unbind()
    COMPILED.cross_entropy(
        logits.data_ptr(), bias if bias is None else bias.data_ptr(), labels.data_ptr(), *logits.shape,
        losses.data_ptr(), totals.data_ptr(),
    )  # fmt: skip
    return losses, totals


def add_column_sums_(sums: Tensor, rows: Tensor, shares: Tensor) -> None:
    """Add Σ_n shares[n] · rows[n] to sums (V,), for rows (N, V) and shares (N,); sums and shares are fp32."""
    if not serves(rows.device, rows.dtype):
        sums += rows.mT @ shares
        return
    assert COMPILED is not None and rows.is_contiguous() and shares.is_contiguous() and sums.is_contiguous()
    COMPILED.column_sums(rows.data_ptr(), shares.data_ptr(), *rows.shape, sums.data_ptr())


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Compute `torch.nn.functional.gelu` with the same options: exact, or approximate="tanh"."""
    return _GELU.apply(x, approximate == "tanh") if serves(x.device, x.dtype) else F.gelu(x, approximate=approximate)


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, with_tanh: bool) -> Tensor:
        assert COMPILED is not None
        x = x.contiguous()
        ctx.with_tanh = with_tanh
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        COMPILED.gelu(x.data_ptr(), y.data_ptr(), x.numel(), with_tanh)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None]:
        assert COMPILED is not None
        (x,), dy = ctx.saved_tensors, dy.contiguous()
        dx = torch.empty_like(x)
        COMPILED.gelu_slopes(x.data_ptr(), dy.data_ptr(), dx.data_ptr(), x.numel(), ctx.with_tanh)
        return dx, None


class AttentionWeights(torch.autograd.Function):
    """The function softmax(scores · scale + bias) over the last dimension: bf16 (B, H, T, S).

    The scores must be contiguous and in bf16, with S of at most MOST, and are overwritten by the result. The bias must
    broadcast to the scores, or be None.
    """

    @staticmethod
    def forward(ctx, scores: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        assert COMPILED is not None and scores.is_contiguous() and scores.shape[3] <= MOST
        ctx.mark_dirty(scores)
        ctx.scale, ctx.bias = scale, None if bias is None else (bias.shape, bias.dtype)
        if bias is not None:
            bias = bias.float().contiguous().expand(scores.shape)
            bias = bias if bias.stride(3) == 1 else bias.contiguous()
        strides = (ctypes.c_int64 * 3)(*(() if bias is None else bias.stride()[:3]))
        pointer = None if bias is None else bias.data_ptr()
        COMPILED.attention_weights(scores.data_ptr(), pointer, strides, scale, *scores.shape)
        ctx.save_for_backward(scores)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slopes: Tensor) -> tuple[Tensor, Tensor | None, None]:
        assert COMPILED is not None
        (weights,), slopes, d_bias = ctx.saved_tensors, slopes.contiguous().clone(), None
        rows, n = weights.numel() // weights.shape[3], weights.shape[3]
        COMPILED.attention_slopes(weights.data_ptr(), slopes.data_ptr(), ctx.scale, rows, n)
        if ctx.needs_input_grad[1]:
            shape, dtype = ctx.bias
            d_bias = (slopes.sum_to_size(shape) / ctx.scale).to(dtype)
        return slopes, d_bias, None


class RMSNorm(nn.RMSNorm):
    """torch's RMSNorm, but with a fused operation for fp32 inputs under bf16 autocast on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        narrow = torch.is_autocast_enabled("cpu") and serves(input.device, torch.get_autocast_dtype("cpu"))
        if not narrow or input.dtype != torch.float32 or self.weight is None or len(self.normalized_shape) > 1:
            return super().forward(input)
        return _RMSNorm.apply(input, self.weight, torch.finfo(torch.float32).eps if self.eps is None else self.eps)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, scale: Tensor, eps: float) -> Tensor:
        assert COMPILED is not None
        x, n = x.contiguous(), len(scale)
        y, inverse = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(x.numel() // n)
        tensors = (x, scale, y, inverse)
        COMPILED.rms_norm(*(each.data_ptr() for each in tensors), eps, len(inverse), n)
        ctx.save_for_backward(x, scale, inverse)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        assert COMPILED is not None
        x, scale, inverse = ctx.saved_tensors
        dy, dx, d_scale = dy.contiguous(), torch.empty_like(x), torch.empty_like(scale)
        tensors = (x, scale, dy, inverse, dx, d_scale)
        COMPILED.rms_norm_slopes(*(each.data_ptr() for each in tensors), len(inverse), len(scale))
        return dx, d_scale, None


def lstm_step_(gates: Tensor, recurrent: Tensor, bias: Tensor, before: Tensor, cell: Tensor, hidden: Tensor) -> None:
    """Compute one LSTM step of B rows, and write `cell` and `hidden` (B, H).

    `gates` (B, 4H) contains the products of inputs and weights, in the order input, forget, cell, output. `recurrent`
    (B, 4H) and `bias` (4H,) are added to these products, and `gates` is overwritten with the values of the gates.
    `before` (B, H) contains the previous cell states. The bias and all cell states are in fp32, and the other tensors
    in bf16. All tensors must be contiguous.
    """
    assert COMPILED is not None
    tensors = (gates, recurrent, bias, before, cell, hidden)
    COMPILED.lstm_step(*(tensor.data_ptr() for tensor in tensors), *cell.shape)


def lstm_step_slopes_(
    gates: Tensor, before: Tensor, cell: Tensor, above: Tensor, later: Tensor, d_cell: Tensor
) -> None:
    """Overwrite `gates`, a result of `lstm_step_`, with the gradients with respect to the pre-activations.

    The gradients with respect to the hidden states are given as the sum of `above` and `later`, bf16 (B, H). `d_cell`,
    fp32 (B, H), contains the gradients with respect to the cell states, and is overwritten with the gradients with
    respect to the previous cell states.
    """
    assert COMPILED is not None
    tensors = (gates, before, cell, above, later, d_cell)
    COMPILED.lstm_step_slopes(*(tensor.data_ptr() for tensor in tensors), *cell.shape)


def dropout(x: Tensor, seed: int, dropped: int, scale: float) -> Tensor:
    """Return x times `scale`, but 0 for each element whose random 32-bit number is below `dropped`.

    x must be contiguous, in bf16 or fp32.
    """
    assert COMPILED is not None and x.is_contiguous() and x.dtype in (torch.bfloat16, torch.float32)
    y = torch.empty_like(x)
    COMPILED.dropout(x.data_ptr(), y.data_ptr(), x.numel(), seed, dropped, scale, x.dtype == torch.float32)
    return y
