"""Learning-rate schedules: the factor on the optimizer's rate, a pure function of the step and the learning curve.

Each takes the step, the length of an epoch and of the whole run in steps, and the validation losses so far. Where a
budget cuts a run short, the epoch is shorter in the same measure, and the schedule keeps its shape; but validations
are as far apart as ever, so that one that goes by their losses sees fewer. A loss changes the rate from the second step
behind its validation on: the first one's is set before.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from retable.core.settings import NonNegativeInt, Share, Warmup


def constant(step: int, epoch: float, max_steps: int, losses: Sequence[float]) -> float:
    return 1.0


def epoch_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], flat_epochs: NonNegativeInt, factor: Share
) -> float:
    """The full rate for `flat_epochs` epochs, then times `factor` with each further one (Zaremba et al. 2014)."""
    return factor ** max(int(step / epoch) - flat_epochs + 1, 0)


def stall_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share) -> float:
    """Times `factor` with each validation that is no better than the best before it (pytorch/examples)."""
    best, stalls = math.inf, 0
    for loss in losses:
        stalls += loss >= best
        best = min(loss, best)
    return factor**stalls


def perplexity_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """Times `factor` with each validation whose perplexity is not `improvement` under the last's (Kim et al. 2016,
    section 4; losses are nats a token)."""
    return factor ** sum(math.exp(before) - math.exp(now) < improvement for before, now in pairwise(losses))


def decay_from_stall(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """The full rate until a validation is not `improvement` times better than the last, then times `factor` with that
    and every further one (Mikolov 2012's toolkit, with improvement 1.003 of the logarithms)."""
    for number, (before, now) in enumerate(pairwise(losses), 1):
        if now * improvement > before:
            return factor ** (len(losses) - number)
    return 1.0


def linear_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], final: Share = 0.0) -> float:
    """From the full rate down to `final` of it in a straight line (word2vec)."""
    return 1 - (1 - final) * min(step / max_steps, 1.0)


def inverse_sqrt(step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup) -> float:
    """Up in a line over the first `warmup` of the run, then down with the inverse square root of the step (Vaswani et
    al. 2017, section 5.3)."""
    warmup_steps = max(round(warmup * max_steps), 1)
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def warmup_linear(step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup) -> float:
    """Up in a line over the first `warmup` of the run, then down in one to 0 (Devlin et al. 2019, appendix A.2)."""
    warmup_steps = max(round(warmup * max_steps), 1)
    return min((step + 1) / warmup_steps, max((max_steps - step) / max(max_steps - warmup_steps, 1), 0.0))


def warmup_cosine(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup, final: Share
) -> float:
    """Up in a line over the first `warmup` of the run, then down along a cosine to `final` of the full rate.

    The schedule of GPT (Radford et al. 2018, section 4.1), with both ends as shares so that it fits any budget.
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(max_steps - warmup_steps, 1), 1.0)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
