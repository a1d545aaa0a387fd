"""How much arithmetic a training takes, and how much of what its chips can do that is."""

from torch import nn

from retable.data.batches import Batches, CountsTokens
from retable.training.weights import matrix_parameters

# What a chip multiplies a second in bf16 with dense matrices, by its data sheet.
_PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L4": 121e12}


def training_cost(objective: nn.Module, batches: Batches) -> dict[str, float]:
    """Tokens and flops of a step, of batches that count their tokens: two operations a weight forward and four
    backward (Kaplan et al. 2020, section 2.1)."""
    if not isinstance(batches, CountsTokens):
        return {}
    return {"tokens": batches.tokens_per_step, "flops": 6 * matrix_parameters(objective) * batches.tokens_per_step}


def flops_utilisation(flops_per_second: float, chip: str, n_chips: int) -> float | None:
    """What so many chips do of what their peak would be (Chowdhery et al. 2022, PaLM, section 4.1), by a part of the
    chip's name; None for one that is not known here."""
    peak = next((peak for name, peak in _PEAK_FLOPS.items() if name in chip), None)
    return None if peak is None else flops_per_second / (n_chips * peak)
