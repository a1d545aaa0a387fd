"""Relative positions as numbers that are added to attention scores (Raffel et al. 2020, section 2.1).

T query positions, S key positions, H heads.
"""

import math

import torch
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """A trained number for each head and each bucket of distances from query to key.

    Args:
        causal: whether queries never attend to later keys; if true, later keys have no buckets.
        n_buckets: number of buckets. If `causal` is False, half of the buckets are for keys after the query.
        max_distance: this distance and all greater distances share the last bucket.
    """

    def __init__(self, n_heads: int, causal: bool, n_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.numbers = nn.Embedding(n_buckets, n_heads)
        self.causal, self.n_buckets, self.max_distance = causal, n_buckets, max_distance

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """Return numbers (1, H, T, S) that are added to attention scores, for queries at the last T of S positions."""
        distances = torch.arange(1 - n_keys, n_queries, device=self.numbers.weight.device)
        numbers = self.numbers(buckets(distances, self.causal, self.n_buckets, self.max_distance))  # (S + T − 1, H)
        # The row of a query is a window on `numbers` that begins one place before the previous query's window.
        return numbers.unfold(0, n_keys, 1).flip(0).transpose(0, 1)[None]


def buckets(distance: Tensor, causal: bool, n_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance (position of the key minus that of the query).

    Half of the buckets are for later keys, and half for all other keys. In each half, the first half of the buckets are
    for one distance each. The remaining buckets are for ranges of distances, with logarithmically growing limits up to
    `max_distance`; the last bucket also includes all greater distances. If `causal` is true, all buckets are for keys
    that are not later, and later keys, to which no query attends, get the bucket of distance 0.
    """
    if causal:
        ahead, distance = torch.zeros_like(distance), -distance.clamp(max=0)
    else:
        n_buckets //= 2
        ahead, distance = (distance > 0) * n_buckets, distance.abs()
    exact = n_buckets // 2
    octaves = (distance.clamp(min=exact) / exact).log() / math.log(max_distance / exact)
    wide = (exact + (octaves * (n_buckets - exact)).long()).clamp(max=n_buckets - 1)
    return ahead + torch.where(distance < exact, distance, wide)
