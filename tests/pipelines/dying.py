"""A learning-rate schedule that kills its process, to test what a `kill -9` leaves behind."""

import os
import signal
from collections.abc import Sequence

from retable.training.schedules import warmup_cosine


def mortal_cosine(
    step: int, epoch: float, max_steps: int, losses: Sequence[float], warmup: float, final: float
) -> float:
    """`warmup_cosine`; but at step DIE_AT, if the environment sets it, the process ends as by `kill -9`."""
    if step == int(os.environ.get("DIE_AT", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
    return warmup_cosine(step, epoch, max_steps, losses, warmup, final)
