"""Batch normalisation (Ioffe and Szegedy 2015, algorithm 1), per feature or per position and feature.

P positions, D features.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate

EPSILON = 1e-5


class BatchNorm(nn.Module):
    """A layer that normalises each feature to mean 0 and variance 1 over the batch, then scales and shifts it.

    In evaluation, mean and variance are running averages of the batches' values, where each new batch has the weight
    `momentum`. Variances are unbiased estimates in training and evaluation; in the paper, only in evaluation (section
    3.1).

    positions: number of positions with separate statistics, for input (…, P, D); with 1, all positions share the
    statistics.
    """

    def __init__(self, features: PositiveInt, momentum: Rate, positions: PositiveInt = 1):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.momentum, self._separate = momentum, positions > 1
        shape = (positions, features) if positions > 1 else (features,)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))

    mean: Tensor
    variance: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Normalise inputs (…, D), or (…, P, D) if positions have separate statistics."""
        mean, variance = self.mean, self.variance
        if self.training:
            variance, mean = torch.var_mean(x, dim=[*range(x.ndim - mean.ndim)])
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(variance, self.momentum)
        return (x - mean) * ((variance + EPSILON).rsqrt() * self.weight) + self.bias
