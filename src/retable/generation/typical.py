"""Locally typical sampling (Meister, Pimentel, Wiher and Cotterell 2022, arXiv 2202.00666, section 4).

R rows (texts that go on), V vocabulary.
"""

import torch
from torch import Tensor

from retable.generation.sampling import Sampling
from retable.generation.strategy import check
from retable.settings import NonNegativeInt, Positive, PositiveInt, Share


class TypicalSampling(Sampling):
    """A token drawn each time from the typical set: of the tokens whose surprisal is nearest to the distribution's
    entropy, the fewest whose probabilities reach `typical_p`.

    It is taken of what `temperature`, `top_k` and `top_p` have left.
    """

    def __init__(
        self,
        generator: torch.Generator,
        max_new_tokens: PositiveInt,
        typical_p: Share,
        temperature: Positive = 1.0,
        top_k: NonNegativeInt = 0,
        top_p: Share = 1.0,
        num_return_sequences: PositiveInt = 1,
        min_new_tokens: NonNegativeInt = 0,
        min_length: NonNegativeInt = 0,
        repetition_penalty: Positive = 1.0,
        batch_size: PositiveInt = 64,
    ):
        super().__init__(
            generator,
            max_new_tokens,
            temperature,
            top_k,
            top_p,
            num_return_sequences,
            min_new_tokens,
            min_length,
            repetition_penalty,
            batch_size,
        )
        check(0 < typical_p <= 1, "typical_p", typical_p, "1.0 for all tokens, or a share above 0")
        self.typical_p = typical_p

    def warp(self, scores: Tensor) -> Tensor:
        scores = super().warp(scores)
        return keep_typical(scores, self.typical_p) if self.typical_p < 1 else scores


def keep_typical(scores: Tensor, mass: float) -> Tensor:
    """Scores (R, V), −∞ outside the typical set of probability `mass`; as many more stay as tie with its last."""
    log_probs = scores.log_softmax(dim=1)
    probabilities = log_probs.exp()
    entropy = torch.special.entr(probabilities).sum(dim=1, keepdim=True)
    distance = (entropy + log_probs).abs()  # of the surprisal −log p
    nearest, order = distance.sort(dim=1)
    short = probabilities.gather(1, order).cumsum(dim=1) < mass
    last = short.sum(dim=1, keepdim=True).clamp(max=scores.shape[1] - 1)  # by rounding all may fall short
    return scores.masked_fill(distance > nearest.gather(1, last), -torch.inf)
