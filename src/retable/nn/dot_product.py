"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) by the faster of two methods.

B batch, T queries per sequence, S keys per sequence, H heads, K head size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.nn import fused
from retable.nn.dropout import drop

SCORES = 512 * 512  # highest number of scores per head for which bf16 scores are stored


def dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute softmax(queries · keysᵀ · scale) · values: (B, H, T, K).

    Args:
        queries: (B, H, T, K); keys, values: (B, H, S, K).
        mask: broadcasts to (B, H, T, S). The mask is True where a query may attend, or contains numbers to add to the
            scores. Every query must be allowed to attend to at least one key.
        causal: whether the n-th query attends only to the first n keys.
        scale: factor of the scores; by default 1 / √K.

    PyTorch's kernel for attention does not store scores, and is the faster method in fp32. In bf16 on a CPU, the kernel
    takes three to five times as long as separate matrix products. For a single query, as in decoding, the kernel takes
    twice as long (benchmarks/language_models.md). For attention with dropout or with a trained term in the scores,
    PyTorch has no CPU kernel. On a GPU, PyTorch chooses among its kernels: FlashAttention if there is no mask. With
    cuDNN's kernel, a step of GPT-2 124M on an H200 takes as long (63.0 and 63.1 ms).
    """
    T, S = queries.shape[2], keys.shape[2]
    learnt = mask is not None and mask.requires_grad and scale == 1
    short = queries.dtype == torch.bfloat16 and T * S <= SCORES
    if queries.device.type != "cpu" or not (learnt or short or T == 1 or dropout):
        return F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal, scale=scale)
    if causal:
        mask = torch.ones(T, S, dtype=torch.bool).tril()
    compiled = fused.serves(queries.device, queries.dtype) and S <= fused.MOST
    if mask is not None and mask.dtype == torch.bool:
        dtype = torch.float32 if compiled else queries.dtype
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    scale = queries.shape[3] ** -0.5 if scale is None else scale
    scores = queries @ keys.mT
    if compiled:
        weights = fused.AttentionWeights.apply(scores, mask, scale)
    else:
        scores = scores * scale if mask is None else torch.add(mask, scores, alpha=scale)
        weights = scores.softmax(dim=3).to(values.dtype)
    return drop(weights, dropout) @ values
