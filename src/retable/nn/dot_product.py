"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), by the way that is fastest.

B batch, T time of the queries, S time of what is attended to, H heads, K head size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.nn import fused
from retable.nn.dropout import drop

SCORES = 512 * 512  # more per head than these are not held at once


def dot_product_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """softmax(queries · keysᵀ · scale) · values, (B, H, T, K), of queries (B, H, T, K), keys and values (B, H, S, K).

    `mask`, of a shape that broadcasts to (B, H, T, S), is True where a query may look, or a number to add to its score;
    with `causal` the first query sees the first key, and each after it one more. Every query sees some key. `scale` is
    1 / √K unless given.

    torch's own kernel keeps no scores, which pays in fp32. In bf16 it takes three to five times as long on a processor
    as the products written out, for a single query, as in decoding, twice as long (benchmarks/language_models.md), and
    for scores with a learnt part or dropout there is none.
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
