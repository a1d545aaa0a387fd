"""How much arithmetic a training takes, and how much of what its chips can do that is."""

import time

import torch
from torch import nn

from retable.data.batches import Batches, CountsTokens
from retable.nn.product import times
from retable.objectives.base import PartlyRead
from retable.training.weights import matrix_parameters

_SIDE, _PRODUCTS = 1024, 4

# What a chip multiplies a second in bf16 with dense matrices, by its data sheet. A name that begins as another stands
# before it.
_PEAK_FLOPS = {
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
}


def training_cost(objective: nn.Module, batches: Batches) -> dict[str, float]:
    """Tokens and flops of a step, of batches that count their tokens: two operations a weight forward and four
    backward (Kaplan et al. 2020, section 2.1), of the weights that a token is multiplied with.

    Each weight counts for each token. So it is too much where a head reads the masked words alone, and for a T5, whose
    encoder and decoder share the tokens; too little for an ELMo, whose softmax stands behind both directions.
    """
    if not isinstance(batches, CountsTokens):
        return {}
    unread = objective.unread_weights() if isinstance(objective, PartlyRead) else 0
    weights = matrix_parameters(objective) - unread
    return {"tokens": batches.tokens_per_step, "flops": round(6 * weights * batches.tokens_per_step)}


def flops_utilisation(flops_per_second: float, chip: str, n_chips: int) -> float | None:
    """What so many chips do of what their peak would be (Chowdhery et al. 2022, PaLM, section 4.1), by a part of the
    chip's name; None for one that is not known here."""
    peak = next((peak for name, peak in _PEAK_FLOPS.items() if name in chip), None)
    return None if peak is None else flops_per_second / (n_chips * peak)


def product_rate(dtype: torch.dtype) -> float:
    """The operations a second that this process reaches in square products in `dtype`, the best of a few: what its
    processors, as busy as they are, could do of a training that were nothing else."""
    left, right = torch.ones(2, _SIDE, _SIDE, dtype=dtype)
    multiplied, seconds = times(right, left), []
    for _ in range(_PRODUCTS):
        started = time.perf_counter()
        multiplied(left)
        seconds.append(time.perf_counter() - started)
    return 2 * _SIDE**3 / min(seconds)
