"""Learning-rate schedules: the factor on the optimizer's rate as a function of progress, not of history."""

import math


def constant(step: int, steps_per_epoch: int, max_steps: int) -> float:
    return 1.0


def epoch_decay(step: int, steps_per_epoch: int, max_steps: int, flat_epochs: int, factor: float) -> float:
    """The full rate for `flat_epochs` epochs, then times `factor` with each further one (Zaremba et al. 2014)."""
    return factor ** max(step // steps_per_epoch - flat_epochs + 1, 0)


def linear_decay(step: int, steps_per_epoch: int, max_steps: int, final: float = 0.0) -> float:
    """From the full rate down to `final` of it in a straight line (word2vec)."""
    return 1 - (1 - final) * min(step / max_steps, 1.0)


def warmup_cosine(step: int, steps_per_epoch: int, max_steps: int, warmup: float, final: float) -> float:
    """Up in a line over the first `warmup` of the run, then down along a cosine to `final` of the full rate.

    The schedule of GPT (Radford et al. 2018, section 4.1), with both ends as shares so that it fits any budget.
    """
    warmup_steps = max(round(warmup * max_steps), 1)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(max_steps - warmup_steps, 1), 1.0)
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))
