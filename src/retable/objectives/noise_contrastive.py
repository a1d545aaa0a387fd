"""Noise-contrastive estimation (Mnih and Teh 2012, section 3).

"A fast and simple algorithm for training neural probabilistic language models".

Shapes: N tokens, K noise words, D d_model, V vocabulary.

System C12 of docs/systems.yaml.
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
    """The loss −log p / (p + ν) for the label and −log ν / (p + ν) for each noise word.

    p = exp(logit) / Z, and ν is the expected number of occurrences of the word in the noise. Z is the same for all
    contexts: a constant or, with `learn_normaliser`, a trained parameter. The values p are not normalised, but training
    makes them sum to about 1. In the paper, Z = 1 and the biases start at −log V. Here, Z = V; with `learn_normaliser`,
    V is only the start value of Z.
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
