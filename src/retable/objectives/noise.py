"""The base class of output layers that compare each token with a few noise words, for large vocabularies.

Shapes: N tokens, K noise words, D d_model, V vocabulary.
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
    """A causal LM whose training loss compares labels with noise words; predictions use the full softmax.

    Each word becomes noise independently of the other words, with the probability min(c · count^`power`, 1). The
    constant c is chosen so that the expected number of noise words is `samples`. All tokens of a batch use the same
    noise words. A word that does not occur in the text gets the count 1, so that training lowers its score, too.

    In the papers, K words are drawn with replacement. Here, no draw is wasted on a repeated "the", the expected number
    of each word is known exactly, and with `samples` = V the noise is the whole vocabulary.
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
            raise UsageError(
                f"samples={samples} means that no noise words are drawn; write objective.samples=1 or more"
            )
        self.samples, self.power = samples, power
        self.register_buffer("_chance", torch.empty(0, dtype=torch.float64), persistent=False)
        self.count(np.ones(vocab_size))

    def count(self, counts: ArrayLike) -> None:
        """Set the noise distribution from the number of occurrences of each word, `counts` (V,).

        If `count` is not called, the distribution is uniform.
        """
        noise = np.maximum(np.asarray(counts), 1) ** float(self.power)
        self._chance = torch.from_numpy(chances(noise, self.samples)).to(self._chance.device)

    def unread_weights(self) -> float:
        """Return the number of weights of words that are neither the label nor noise."""
        V, D = self.head.weight.shape
        return (V - 1 - min(self.samples, V)) * D

    def scores(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw noise words (K,), and compute fp32 scores of the labels (N,) and of the noise words (N, K).

        The score of a word is its logit minus the log of the probability that the word is noise.
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
    """Compute min(c · weights, 1), float64 (V,), with the constant c for which the result sums to `samples`.

    All results are 1 if V is at most `samples`.
    """
    if samples >= len(weights):
        return np.ones(len(weights))
    falling = np.sort(weights)[::-1]
    rest = falling[::-1].cumsum()[::-1]  # rest[k] is the sum of all weights except the k largest
    factors = (samples - np.arange(len(weights))) / rest  # factors[k] is c if the k largest results are 1
    certain = np.argmax(factors * falling <= 1)
    return np.minimum(factors[certain] * weights, 1.0)
