"""C12: noise-contrastive estimation (Mnih and Teh 2012, "A fast and simple algorithm for training neural probabilistic
language models", section 3).

N tokens, K words of noise, D d_model, V vocabulary.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt
from retable.models.base import LeftToRight
from retable.objectives.noise import NoiseLM


class NoiseContrastive(NoiseLM):
    """Tell data from noise by p / (p + ν), with p = exp(logit) / Z and ν a word's expected number in the noise:
    −log p / (p + ν) for the label, −log ν / (p + ν) for each word of noise.

    p adds up to 1 only because that is the best it can do: Z, one number for all contexts, is a constant, or learnt
    with `learn_normaliser`. Fixed, it takes the part of the paper's Z = 1 with biases that begin at −log V.
    """

    log_normaliser: Tensor

    def __init__(
        self,
        model: LeftToRight,
        vocab_size: PositiveInt,
        tie: bool,
        bias: bool,
        reduction: Literal["mean", "time_sum"],
        samples: PositiveInt,
        power: NonNegative,
        learn_normaliser: bool,
        projection: NonNegative = 0.0,
    ):
        super().__init__(model, vocab_size, tie, bias, reduction, samples, power, projection)
        log_normaliser = torch.tensor(math.log(vocab_size))
        if learn_normaliser:
            self.log_normaliser = nn.Parameter(log_normaliser)
        else:
            self.register_buffer("log_normaliser", log_normaliser, persistent=False)

    def nats(self, hidden: Tensor, labels: Tensor) -> Tensor:
        label, others, _ = self.scores(hidden, labels)
        of_data = F.softplus(self.log_normaliser - label)
        of_noise = F.softplus(others - self.log_normaliser).sum(dim=1)
        return (of_data + of_noise).mean()
