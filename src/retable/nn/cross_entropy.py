"""Cross-entropy of a softmax over a vocabulary, in chunks of logits or, within torch.compile, with all logits at once.

N tokens, D d_model, V vocabulary.
"""

import os

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from retable.nn import fused
from retable.nn.product import Times, pays, product, times

LOGITS = 1 << 22  # logits computed at a time on a CPU (16 MB); fewer are slower, and more are not faster
LOGITS_ON_GPU = 1 << 26  # logits computed at a time on a GPU
SLOPES_ON_GPU = 1 << 27  # logit gradients at a time on a GPU; more at a time need fewer additions to weight gradients
ALIGNED = 64  # on a GPU, the vocabulary size is padded to a multiple of 64: other sizes take three times as long
SLOPES = 1 << 25  # gradients of logits per product on a CPU (64 MB), if their data type is narrower than the weights'
IGNORED = -100  # label of a token that has no loss; allowed only within torch.compile
SHARE_OF_MEMORY = 1 / 16  # largest share of a device's memory for all logits; their gradients need as much again


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Compute the mean of −log softmax(hidden · weightᵀ + bias)[label] over tokens, an fp32 scalar in nats.

    Args:
        hidden (N, D), weight (V, D), bias (V,), labels (N,).

    The gradient is computed together with the loss, for a few rows of logits at a time. Memory is therefore needed for
    V·D numbers instead of N·V numbers, and each logit is computed only once. The loss can be differentiated only once.
    Under autocast, matrix products are in the data type of autocast; sums and exponentials are in fp32.

    Within torch.compile, all logits are computed at once if they fit in memory (`fit_in_memory`), so that the compiler
    fuses the softmax with the products' inputs and outputs. A step of GPT-2 124M on an H200 then takes 63.1 ms, and
    with chunks outside the compiled graph 77.6 ms. Tokens with the label IGNORED are then left out of the mean.
    """
    kind = hidden.device.type
    hidden = hidden.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype)
    if not is_compiling():
        return _in_chunks(hidden, weight, bias, labels)
    if fit_in_memory(hidden, len(weight)):
        return _at_once(hidden, weight, bias, labels, ALIGNED if hidden.is_cuda else 1)
    return _outside_the_graph(hidden, weight, bias, labels)


def fit_in_memory(hidden: Tensor, vocab_size: int) -> bool:
    """Check that the logits (N, V) of `hidden` (N, D) need at most SHARE_OF_MEMORY of the device's memory."""
    return len(hidden) * vocab_size * hidden.itemsize <= SHARE_OF_MEMORY * _bytes_of_memory(hidden.device.type)


@torch.compiler.assume_constant_result
def _bytes_of_memory(kind: str) -> int:
    if kind == "cuda":
        return torch.cuda.get_device_properties().total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _at_once(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, aligned: int) -> Tensor:
    """Compute the loss with all logits at once; the vocabulary is padded to a multiple of `aligned`."""
    n_words = len(weight)
    table = weight.to(hidden.dtype)
    if filling := -n_words % aligned:
        table = F.pad(table, (0, 0, 0, filling))
    logits = F.linear(hidden, table)[:, :n_words].float()
    return F.cross_entropy(logits if bias is None else logits + bias, labels, ignore_index=IGNORED)


@torch.compiler.disable
def _outside_the_graph(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    real = labels != IGNORED
    if not bool(real.all()):
        hidden, labels = hidden[real], labels[real]
    return _in_chunks(hidden, weight, bias, labels)


def _in_chunks(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    of = _LinearCrossEntropyOnGPU if hidden.is_cuda else _LinearCrossEntropy
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (hidden, weight, bias))
    return of.apply(hidden, weight, bias, labels, learns)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, learns: bool) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            table = weight.to(hidden.dtype)
            d_hidden, d_weight = (torch.empty_like(hidden), torch.empty_like(weight)) if learns else (hidden, weight)
            d_bias = torch.zeros_like(bias) if learns and bias is not None else None
            loss = hidden.new_zeros((), dtype=torch.float32)
            narrow = learns and hidden.dtype != weight.dtype
            size = _chunk_size(hidden, len(weight))
            to_logits = times(table, hidden[:size])
            to_hidden = times(table.mT, hidden.new_empty(min(size, len(hidden)), len(weight))) if learns else None
            # After a matrix product in a narrow data type, its V·D results are converted to the weights' type and added
            # up. For a product of a few rows, converting and adding take longer than the product itself. Therefore the
            # gradients (slopes) of many chunks are collected for one product.
            room = max(SLOPES // len(weight), size) if narrow else size
            for span in _slices(0, len(hidden), room):
                waiting = hidden.new_empty(span.stop - span.start, len(weight)) if narrow else None
                scaled = []
                for rows in _slices(span.start, span.stop, size):
                    out = None if waiting is None else waiting[rows.start - span.start : rows.stop - span.start]
                    nats, slope, total = _slopes(to_logits, hidden[rows], bias, labels[rows], learns, out)
                    loss += nats
                    if to_hidden is None:
                        continue
                    # The divisions by the softmax's denominator and by the number of tokens are applied to the small
                    # factors of matrix products instead of to N·V numbers.
                    share = 1 / (total * len(labels))
                    if d_bias is not None:
                        fused.add_column_sums_(d_bias, slope, share[:, 0])
                    slope = slope.to(hidden.dtype) if out is None else out
                    to_hidden(slope, out=d_hidden[rows]).mul_(share)
                    scaled.append((hidden[rows] * share).to(hidden.dtype))
                if to_hidden is None:
                    continue
                if waiting is None:
                    if pays(slope.mT, scaled[0].mT):
                        partial = product(slope.mT, scaled[0].mT)
                        d_weight = d_weight.add_(partial) if span.start > 0 else partial
                    else:
                        d_weight.addmm_(slope.mT, scaled[0], beta=span.start > 0)
                elif span.start > 0:
                    d_weight += waiting.mT @ torch.cat(scaled)
                else:
                    d_weight.copy_(waiting.mT @ torch.cat(scaled))
        if learns:
            ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss / len(labels)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.saved_tensors
        if d_loss != 1:  # `d_loss` is 1 if the loss has no other terms
            gradients = [None if gradient is None else gradient.mul_(d_loss) for gradient in gradients]
        return *gradients, None, None


def _slopes(
    to_logits: Times, hidden: Tensor, bias: Tensor | None, labels: Tensor, learns: bool, out: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the sum of the cross-entropies of a few rows, in nats, and the gradients of this sum.

    Returns: the sum, the gradients with respect to the logits (n, V), and the softmax's denominators (n, 1). The
        gradients are computed only if `learns` is true, and are multiplied by the denominators. The gradients are also
        written to `out` (n, V), in the data type of `out`.
    """
    if out is not None and fused.serves(out.device, out.dtype):
        to_logits(hidden, out=out)
        losses, totals = fused.cross_entropy_(out, bias, labels)
        return losses.sum(), out, totals[:, None]
    logits, label = _with_bias(to_logits(hidden), bias), labels[:, None]
    top = logits.amax(1, keepdim=True)
    of_label = logits.gather(1, label) - top
    total = logits.sub_(top).exp_().sum(1, keepdim=True)
    nats = (total.log() - of_label).sum()
    if learns:
        logits.scatter_add_(1, label, -total)
        if out is not None:
            out.copy_(logits)
    return nats, logits, total


class _LinearCrossEntropyOnGPU(torch.autograd.Function):
    """`_LinearCrossEntropy` for a GPU, with few passes over the logits and without waiting for the GPU."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, learns: bool) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            (n_words, _), filling = weight.shape, -len(weight) % ALIGNED
            table = F.pad(weight.to(hidden.dtype), (0, 0, 0, filling))
            of_filling = None if bias is None else F.pad(bias.float(), (0, filling), value=-torch.inf)
            d_hidden, d_weight = (torch.empty_like(hidden), torch.zeros_like(weight)) if learns else (hidden, weight)
            d_bias = torch.zeros_like(bias) if learns and bias is not None else None
            loss = hidden.new_zeros((), dtype=torch.float32)
            for rows in _slices(0, len(hidden), max(SLOPES_ON_GPU // len(table), 1)):
                logits, label = hidden[rows] @ table.mT, labels[rows, None]
                if of_filling is not None:
                    logits = logits + of_filling
                else:
                    logits[:, n_words:] = -torch.inf
                log_probs = F.log_softmax(logits, 1, dtype=torch.float32)
                log_prob = log_probs.gather(1, label)
                loss -= log_prob.sum()
                if not learns:
                    continue
                slopes = torch.exp(log_probs, out=torch.empty_like(log_probs, dtype=hidden.dtype))
                slopes.scatter_(1, label, torch.expm1(log_prob).to(slopes.dtype))
                if d_bias is not None:
                    d_bias += slopes.sum(0, dtype=torch.float32)[:n_words]
                torch.mm(slopes, table, out=d_hidden[rows])
                d_weight += (slopes.mT @ hidden[rows])[:n_words]
        ctx.n_tokens = len(labels)
        if learns:
            ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return loss / ctx.n_tokens

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        share = d_loss / ctx.n_tokens
        return *(None if gradient is None else gradient.mul_(share) for gradient in ctx.saved_tensors), None, None


def linear_log_prob(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """Compute log softmax(hidden · weightᵀ + bias)[label] of every token, fp32 (N,), in nats.

    Args:
        hidden: states, (N, D).
        weight, bias: weights and biases of the V words, (V, D) and (V,).
        labels: ids of the words to score, (N,).
    """
    table = weight.to(hidden.dtype)
    parts = [
        -F.cross_entropy(logits_of(hidden[rows], table, bias), labels[rows], reduction="none")
        for rows in row_chunks(hidden, len(weight))
    ]
    return torch.cat(parts)


def logits_of(hidden: Tensor, table: Tensor, bias: Tensor | None) -> Tensor:
    """Compute the logits (N, V) in fp32 from hidden (N, D), table (V, D) and bias (V,).

    Args:
        bias: None for a layer without a bias.
    """
    return _with_bias(product(hidden, table), bias)


def _with_bias(logits: Tensor, bias: Tensor | None) -> Tensor:
    logits = logits.float()
    return logits if bias is None else logits.add_(bias)


def row_chunks(hidden: Tensor, vocab_size: int) -> list[slice]:
    """Split the rows of `hidden` (N, D) into slices, each with a bounded number of logits."""
    return _slices(0, len(hidden), _chunk_size(hidden, vocab_size))


def _chunk_size(hidden: Tensor, vocab_size: int) -> int:
    return max((LOGITS_ON_GPU if hidden.is_cuda else LOGITS) // vocab_size, 1)


def _slices(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]
