"""Learning-rate schedules: pure functions from a step and validation losses to a factor on the optimizer's rate.

Each schedule is called with the step, the lengths of an epoch and of the run in steps, and the validation losses so
far. If a budget shortens the run, the epoch is shortened in proportion, and the schedule keeps its shape. The number of
steps between validations does not change, so a schedule that depends on losses sees fewer losses. A loss affects the
rate from the second step after its validation, because the rate of the first step after a validation is set before this
validation.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from retable.core.settings import NonNegativeInt, Share, Warmup


def constant(step: int, epoch: float, max_steps: int, losses: Sequence[float]) -> float:
    return 1.0


def drop(step: int, epoch: float, max_steps: int, losses: Sequence[float], at: Share, factor: Share) -> float:
    """Return 1 until the share `at` of the run has passed, and `factor` after that."""
    return factor if step >= at * max_steps else 1.0


def epoch_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], flat_epochs: NonNegativeInt, factor: Share
) -> float:
    """Return 1 for `flat_epochs` epochs, then decay by `factor` per epoch (Zaremba et al. 2014)."""
    return factor ** max(int(step / epoch) - flat_epochs + 1, 0)


def stall_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share) -> float:
    """Decay by `factor` after each validation that is no better than the best earlier validation (pytorch/examples)."""
    best, stalls = math.inf, 0
    for loss in losses:
        stalls += loss >= best
        best = min(loss, best)
    return factor**stalls


def perplexity_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """Decay by `factor` after each validation whose perplexity falls by less than `improvement`.

    Kim et al. (2016, section 4). Losses are in nats per token.
    """
    return factor ** sum(math.exp(before) - math.exp(now) < improvement for before, now in pairwise(losses))


def decay_from_stall(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """Return 1 until the ratio of two successive validation losses is below `improvement`, then decay by `factor`.

    The rate decays once more after every further validation. Mikolov's toolkit (2012) uses this schedule with a ratio
    of 1.003 between log-probabilities.
    """
    for number, (before, now) in enumerate(pairwise(losses), 1):
        if now * improvement > before:
            return factor ** (len(losses) - number)
    return 1.0


def linear_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], final: Share = 0.0) -> float:
    """Decay linearly from 1 to `final` over the run (word2vec)."""
    return 1 - (1 - final) * min(step / max_steps, 1.0)


def inverse_sqrt(step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay with the inverse square root of the step.

    Vaswani et al. (2017, section 5.3).
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def warmup_linear(step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay linearly to 0.

    Devlin et al. (2019, appendix A.2).
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    return min((step + 1) / warmup_steps, max((max_steps - step) / max(max_steps - warmup_steps, 1), 0.0))


def warmup_cosine(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup, final: Share
) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay along a cosine to `final`.

    GPT uses this schedule (Radford et al. 2018, section 4.1). `warmup` and `final` are shares, so the schedule fits any
    budget.
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(max_steps - warmup_steps, 1), 1.0)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
