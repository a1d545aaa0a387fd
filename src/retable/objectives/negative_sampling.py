"""Negative sampling (Mikolov et al. 2013b, "Distributed Representations of Words and Phrases", section 2.2).

Shapes: R rows, C predictors per row, J targets per row, N noise words, D d_model, V vocabulary.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Seed
from retable.models.base import WindowModel
from retable.objectives.window_prediction import WindowPrediction


class NegativeSampling(WindowPrediction):
    """The loss −log σ(u_o·v_c) − Σ_k log σ(−u_k·v_c) of a pair (c, o), with noise words k: equation 4.

    Noise is not drawn per pair: all pairs of a step share `pool` noise words, each weighted with `negatives` / `pool`.
    The expected loss and gradient of a pair are those of equation 4, and one matrix product replaces `negatives`
    look-ups per pair. So each pair is compared with more noise words than in the paper, but all pairs of a step are
    compared with the same noise words. A noise word that equals the pair's word o counts like any other noise word, as
    in equation 4; word2vec.c skips such a noise word.

    counts: number of occurrences of each word, (V,). The probability of a word as noise is ∝ count^power. A word with
    count 0 is never drawn, so set the count of the line end to 0.

    Raises: UsageError: a count is negative, or all counts are 0.
    """

    def __init__(
        self,
        model: WindowModel,
        counts: ArrayLike,
        negatives: PositiveInt = 5,
        power: NonNegative = 0.75,
        seed: Seed = 1,
        pool: PositiveInt = 128,
    ) -> None:
        counts = np.asarray(counts, dtype=np.float64)
        if counts.min() < 0 or counts.sum() == 0:
            raise UsageError("counts for negative sampling are negative or all 0; pass the counts of a text's words")
        if negatives < 1 or pool < 1:
            raise UsageError(f"negatives={negatives}, pool={pool}: both must be 1 or more")
        super().__init__(model, len(counts))
        self.negatives, self.seed, self.pool = negatives, seed, pool
        noise = np.where(counts > 0, counts**power, 0)
        self.noise = noise / noise.sum()  # (V,)
        self._cumulative = np.cumsum(noise) / noise.sum()

    def draw(self, step: int) -> np.ndarray:
        """Draw the noise words of a step, (N,) int64.

        All processes draw the same noise words, because the draw depends only on the seed and the step.
        """
        uniform = np.random.Generator(np.random.Philox(key=[self.seed, step])).random(self.pool)
        return np.searchsorted(self._cumulative, uniform, side="right")

    def nats(self, hidden: Tensor, targets: Tensor, pairs: Tensor, step: int) -> Tensor:
        noise = torch.from_numpy(self.draw(step)).to(targets.device)
        return negative_sampling(hidden, self.output(targets), self.output(noise), pairs, self.negatives)


def negative_sampling(v: Tensor, u: Tensor, noise: Tensor, pairs: Tensor, negatives: float) -> Tensor:
    """Compute Σ over pairs of −log σ(u·v) − negatives · (mean of log σ(−n·v) over noise vectors n), in nats.

    v (R, C, D) are the predictors, u (R, J, D) the targets, and noise (N, D) the noise words; pairs (R, C, J) is a
    mask. Gradients are computed for `v`, `u` and `noise`.
    """
    return _NegativeSampling.apply(v, u, noise, pairs, negatives)


class _NegativeSampling(torch.autograd.Function):
    """`negative_sampling` with closed-form gradients, which are computed together with the loss.

    Autograd would keep the score matrices, which are the largest tensors, and would read these matrices several more
    times.
    """

    @staticmethod
    def forward(ctx, v: Tensor, u: Tensor, noise: Tensor, pairs: Tensor, negatives: float) -> Tensor:
        flat = v.flatten(0, 1)  # (R·C, D)
        weight = pairs.sum(-1).view(-1, 1) * (negatives / len(noise))  # (R·C, 1): per predictor, weight of noise words
        positive = F.logsigmoid(v @ u.mT)  # (R, C, J)
        negative = F.logsigmoid(-flat @ noise.T)  # (R·C, N)
        loss = -(positive * pairs).sum() - (negative.sum(-1, keepdim=True) * weight).sum()
        # d/dx −log σ(x) = σ(x) − 1 = expm1(log σ(x)), and by symmetry d/dx −log σ(−x) = −expm1(log σ(−x)).
        d_positive = positive.expm1_().mul_(pairs)
        d_negative = negative.expm1_().mul_(-weight)
        d_v = d_positive @ u + (d_negative @ noise).view_as(v)
        ctx.save_for_backward(d_v, d_positive.mT @ v, d_negative.T @ flat)
        return loss

    @staticmethod
    def backward(ctx, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        d_v, d_u, d_noise = ctx.saved_tensors
        return d_v * d_loss, d_u * d_loss, d_noise * d_loss, None, None
