"""Relative positions as numbers that are added to attention scores (Raffel et al. 2020, section 2.1).

T positions of queries, S of keys, H heads.
"""

import math

import torch
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """A learnt number per head and bucket of distances from a query to a key.

    Args:
        causal: whether keys after the query have no buckets.
        n_buckets: number of buckets, half of them for keys ahead if not causal.
        max_distance: this and all larger distances share the last bucket.
    """

    def __init__(self, n_heads: int, causal: bool, n_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.numbers = nn.Embedding(n_buckets, n_heads)
        self.causal, self.n_buckets, self.max_distance = causal, n_buckets, max_distance

    def forward(self, n_queries: int, n_keys: int) -> Tensor:
        """Return the numbers to add to the scores of the last T of S positions on all S, (1, H, T, S)."""
        distances = torch.arange(1 - n_keys, n_queries, device=self.numbers.weight.device)
        numbers = self.numbers(buckets(distances, self.causal, self.n_buckets, self.max_distance))  # (S + T − 1, H)
        # Each query's row is a window on the distances, one place to the left of the previous query's.
        return numbers.unfold(0, n_keys, 1).flip(0).transpose(0, 1)[None]


def buckets(distance: Tensor, causal: bool, n_buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance, the key's position minus the query's.

    Half of the buckets have one distance each. The others have logarithmically growing ranges up to `max_distance`, and
    the last has all greater distances. Distances ahead have half of all buckets; with `causal`, where no query attends
    ahead, they have the bucket of distance 0.
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
