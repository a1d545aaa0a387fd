"""The pooler of an encoder, for objectives that read the states of tokens and no summary of the sequence."""

from typing import Any


def leave_pooler(model: Any) -> None:
    """Freeze a pooler that nothing in the loss depends on: distributed training waits for gradients of all the rest."""
    if getattr(model, "pooler", None) is not None:
        model.pooler.requires_grad_(False)
