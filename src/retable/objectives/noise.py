"""Noise: what output layers of large vocabularies tell a token from in training, in place of all other words.

N tokens, K words of noise, D d_model, V vocabulary.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt
from retable.models.base import LeftToRight
from retable.objectives.base import CountsWords, PartlyRead
from retable.objectives.causal_lm import CausalLM


class NoiseLM(CausalLM, CountsWords, PartlyRead):
    """A causal LM whose loss scores labels against words of noise; it predicts by the full, normalised softmax.

    Each word is noise with a chance of its own, independently of the others: count^`power` times a constant, but 1 at
    most, so that `samples` words are expected. A draw serves the whole batch. Words that the text lacks count once, so
    that they are pushed down like others.

    The papers draw K words with replacement. Without it no draw is spent on the tenth "the", the expected number of
    each word is exact, and as many samples as words are the whole vocabulary.
    """

    _chance: Tensor

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        samples: PositiveInt,
        power: NonNegative,
        projection: NonNegative = 0.0,
    ):
        super().__init__(model, vocab_size, tie, bias, reduction, projection)
        if samples < 1:
            raise UsageError(f"samples={samples} leaves no noise to learn from; write objective.samples=1 or more")
        self.samples, self.power = samples, power
        self.register_buffer("_chance", torch.empty(0, dtype=torch.float64), persistent=False)
        self.count(np.ones(vocab_size))

    def count(self, counts: ArrayLike) -> None:
        """Take the noise from the words' counts (V,); until then all words are equally likely."""
        noise = np.maximum(np.asarray(counts), 1) ** float(self.power)
        self._chance = torch.from_numpy(chances(noise, self.samples)).to(self._chance.device)

    def unread_weights(self) -> float:
        """The rows of words that are neither label nor noise."""
        V, D = self.head.weight.shape
        return (V - 1 - min(self.samples, V)) * D

    def scores(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, D) and (N,) to the labels' scores (N,) and those of noise (N, K), in fp32, with the words of noise (K,).

        A score is the softmax's logit less the logarithm of the word's chance to be noise.
        """
        noise = torch.bernoulli(self._chance).nonzero().squeeze(1)
        words = torch.cat([labels, noise])
        weights = F.embedding(words, self.head.weight)
        offsets = -self._chance[words].log().float()
        if self.head.bias is not None:
            offsets = offsets + self.head.bias[words]
        N = len(labels)
        of_labels = (hidden * weights[:N]).sum(dim=1).float() + offsets[:N]
        return of_labels, (hidden @ weights[N:].mT).float() + offsets[N:], noise


def chances(weights: np.ndarray, samples: float) -> np.ndarray:
    """float64 (V,): c·weights but 1 at most, with the c for which they add up to `samples`; all 1 if V is no more."""
    if samples >= len(weights):
        return np.ones(len(weights))
    falling = np.sort(weights)[::-1]
    rest = falling[::-1].cumsum()[::-1]  # of all but the heaviest 0, 1, ...
    factors = (samples - np.arange(len(weights))) / rest  # the c with so many of them at 1
    certain = np.argmax(factors * falling <= 1)
    return np.minimum(factors[certain] * weights, 1.0)
