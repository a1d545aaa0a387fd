"""Relative positions as numbers that are added to attention scores (Raffel et al. 2020, section 2.1).

T query positions, S key positions, H heads.
"""

import math

import torch
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """A learnt number per head and bucket of distances from a query to a key.

    Args:
        causal: whether no query attends to later keys, so that later keys need no buckets.
        n_buckets: number of buckets. If `causal` is False, half of the buckets are for keys after the query.
        max_distance: distance from which on all distances share the last bucket.
    """

    def __init__(self, n_heads: int, causal: bool, n_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.numbers = nn.Embedding(n_buckets, n_heads)
        self.causal, self.n_buckets, self.max_distance = causal, n_buckets, max_distance

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """Return the numbers (1, H, T, S) to add to the scores of queries at the last T of S positions."""
        distances = torch.arange(1 - n_keys, n_queries, device=self.numbers.weight.device)
        numbers = self.numbers(buckets(distances, self.causal, self.n_buckets, self.max_distance))  # (S + T − 1, H)
        # Each query's row is a window on the distances, one place to the left of the previous query's window.
        return numbers.unfold(0, n_keys, 1).flip(0).transpose(0, 1)[None]


def buckets(distance: Tensor, causal: bool, n_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance: the key's position minus the query's position.

    Half of the buckets are for later keys, and half for all other keys. In either half, half of the buckets have one
    distance each. The remaining buckets are for ranges of distances that grow logarithmically up to `max_distance`; the
    last bucket also has all greater distances. With `causal`, all buckets are for keys that are not later. Later keys,
    to which no query attends, then have the bucket of distance 0.
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
