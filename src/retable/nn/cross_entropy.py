"""A softmax over a vocabulary and its cross-entropy, without ever holding all logits.

N tokens, D d_model, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LOGITS = 1 << 22  # so many at a time on a processor: 16 MB; fewer take longer, more no less
LOGITS_ON_GPU = 1 << 26
SLOPES = 1 << 25  # so many at a time on a processor in a type narrower than the weights': 64 MB


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """The mean over tokens of −log softmax(hidden · weightᵀ + bias)[label], a scalar in fp32.

    hidden (N, D), weight (V, D), bias (V,), labels (N,). Its gradient is made along with the loss, a few rows of logits
    at a time: memory for V·D and not for N·V, and the logits are computed once. Differentiable once. Under autocast
    products are of its type, sums and exponentials in fp32.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
    return _LinearCrossEntropy.apply(hidden.to(dtype), weight, bias, labels)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            table = weight.to(hidden.dtype)
            learns = any(ctx.needs_input_grad)
            d_hidden, d_weight = (torch.empty_like(hidden), torch.empty_like(weight)) if learns else (hidden, weight)
            d_bias = torch.zeros_like(bias) if learns and bias is not None else None
            loss = hidden.new_zeros((), dtype=torch.float32)
            narrow = learns and hidden.dtype != weight.dtype
            size = _chunk_size(hidden, len(weight))
            # A product in a narrow type leaves V·D numbers to bring to the weights' type and to add up, which takes
            # longer than the product of a few rows: the slopes of many chunks wait for one.
            room = max(SLOPES // len(weight), size) if narrow and not hidden.is_cuda else size
            for span in _slices(0, len(hidden), room):
                waiting = hidden.new_empty(span.stop - span.start, len(weight)) if narrow else None
                shares = torch.empty(span.stop - span.start, 1, device=hidden.device)
                for rows in _slices(span.start, span.stop, size):
                    logits, label = logits_of(hidden[rows], table, bias), labels[rows, None]
                    top = logits.amax(1, keepdim=True)
                    of_label = logits.gather(1, label) - top
                    total = logits.sub_(top).exp_().sum(1, keepdim=True)
                    loss += (total.log() - of_label).sum()
                    if not learns:
                        continue
                    # The softmax's denominator and the mean divide the products' small factors, not N·V numbers.
                    slope, share = logits.scatter_add_(1, label, -total), 1 / (total * len(labels))
                    if d_bias is not None:
                        d_bias += slope.mT @ share[:, 0]
                    here = slice(rows.start - span.start, rows.stop - span.start)
                    shares[here] = share
                    slope = slope.to(hidden.dtype) if waiting is None else waiting[here].copy_(slope)
                    torch.mm(slope, table, out=d_hidden[rows]).mul_(share)
                if not learns:
                    continue
                scaled = (hidden[span] * shares).to(hidden.dtype)
                if waiting is None:
                    d_weight.addmm_(slope.mT, scaled, beta=span.start > 0)
                elif span.start > 0:
                    d_weight += waiting.mT @ scaled
                else:
                    d_weight.copy_(waiting.mT @ scaled)
        if learns:
            ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss / len(labels)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        if d_loss.is_cuda or d_loss != 1:  # 1 where this is all of the loss; looking makes a GPU wait
            gradients = [None if gradient is None else gradient.mul_(d_loss) for gradient in gradients]
        return *gradients, None


def linear_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """(N,) fp32: log softmax(hidden · weightᵀ + bias)[label] of every token."""
    table = weight.to(hidden.dtype)
    parts = [
        -F.cross_entropy(logits_of(hidden[rows], table, bias), labels[rows], reduction="none")
        for rows in row_chunks(hidden, len(weight))
    ]
    return torch.cat(parts)


def logits_of(hidden: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """(N, V) in fp32."""
    logits = (hidden @ table.mT).float()
    return logits if bias is None else logits.add_(bias)


def row_chunks(hidden: Tensor, vocab_size: int) -> list[slice]:
    """Slices of the rows, each of a bounded number of logits."""
    return _slices(0, len(hidden), _chunk_size(hidden, vocab_size))


def _chunk_size(hidden: Tensor, vocab_size: int) -> int:
    return max((LOGITS_ON_GPU if hidden.is_cuda else LOGITS) // vocab_size, 1)


def _slices(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
