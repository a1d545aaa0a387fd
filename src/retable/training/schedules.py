"""Learning-rate schedules: functions that return, for a step, the factor by which to multiply the optimizer's rate.

The arguments of a schedule are the step, the number of steps in an epoch and in the run, and the validation losses so
far. The factor depends only on these arguments. If a budget shortens the run, the epoch is shortened in proportion, so
the schedule keeps its shape. The number of steps between validations does not change, so a schedule that depends on
losses gets fewer losses. A loss affects the rate from the second step after its validation, because the rate of the
next step is set before the validation.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from retable.core.settings import NonNegative, NonNegativeInt, Share, Warmup


def constant(step: int, epoch: float, max_steps: int, losses: Sequence[float]) -> float:
    return 1.0


def drop(step: int, epoch: float, max_steps: int, losses: Sequence[float], at: Share, factor: Share) -> float:
    """Return 1 until the share `at` of the run's steps is done, and `factor` after that."""
    return factor if step >= at * max_steps else 1.0


def epoch_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], flat_epochs: NonNegativeInt, factor: Share
) -> float:
    """Return 1 in the first `flat_epochs` epochs, then multiply by `factor` once per epoch (Zaremba et al. 2014)."""
    return factor ** max(int(step / epoch) - flat_epochs + 1, 0)


def inverse_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], rate: NonNegative) -> float:
    """Divide the rate by 1 + `rate` · t, where t is the number of completed epochs (Ma and Hovy 2016, section 3.2)."""
    return 1 / (1 + rate * int(step / epoch))


def stall_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share) -> float:
    """Multiply the rate by `factor` after each validation that is not better than all before (pytorch/examples)."""
    best, stalls = math.inf, 0
    for loss in losses:
        stalls += loss >= best
        best = min(loss, best)
    return factor**stalls


def perplexity_decay(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """Multiply the rate by `factor` after each validation at which perplexity falls by less than `improvement`.

    Kim et al. (2016, section 4). Losses are in nats per token.
    """
    return factor ** sum(math.exp(before) - math.exp(now) < improvement for before, now in pairwise(losses))


def decay_from_stall(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], factor: Share, improvement: float
) -> float:
    """Return 1 until the ratio of two successive validation losses is below `improvement`, and `factor` after that.

    After every further validation, the result is multiplied by `factor` again. Mikolov's toolkit (2012) uses this
    schedule with a ratio of 1.003 between log-probabilities.
    """
    for number, (before, now) in enumerate(pairwise(losses), 1):
        if now * improvement > before:
            return factor ** (len(losses) - number)
    return 1.0


def linear_decay(step: int, epoch: float, max_steps: int, losses: Sequence[float], final: Share = 0.0) -> float:
    """Decay linearly from 1 to `final` over the whole run, as in word2vec."""
    return 1 - (1 - final) * min(step / max_steps, 1.0)


def inverse_sqrt(step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay with the inverse square root of the step.

    Vaswani et al. (2017, section 5.3).
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    return min((step + 1) / warmup_steps, math.sqrt(warmup_steps / (step + 1)))


def warmup_linear(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup, final: Share = 0.0
) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay linearly from 1 to `final`.

    Devlin et al. (2019, appendix A.2).
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    left = max((max_steps - step) / max(max_steps - warmup_steps, 1), 0.0)
    return min((step + 1) / warmup_steps, final + (1 - final) * left)


def warmup_cosine(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: Warmup, final: Share
) -> float:
    """Warm up linearly over the share `warmup` of the run, then decay from 1 to `final` along a cosine.

    GPT uses this schedule (Radford et al. 2018, section 4.1). `warmup` is a share of the run, so that the schedule
    works with any budget.
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(max_steps - warmup_steps, 1), 1.0)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
