"""The cost of a training in FLOPs, and its FLOPs per second as a share of the chips' peak."""

import time

import torch
from torch import nn

from retable.data.batches import Batches, CountsTokens
from retable.nn.product import times
from retable.objectives.base import PartlyRead
from retable.training.weights import matrix_parameters

_SIDE, _PRODUCTS = 1024, 4

# Peak FLOPs per second in bf16 with dense matrices, from data sheets. The first name that the chip's full name contains
# is used, so "H100 PCIe" must be before "H100".
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
    """Compute tokens and FLOPs per step, or return {} if the batches do not count their tokens.

    Each weight in a matrix that multiplies tokens costs two operations per token in the forward pass, and four in the
    backward pass (Kaplan et al. 2020, section 2.1). This estimate is too high for heads that read only masked words,
    and for T5, where a token passes either the encoder or the decoder. The estimate is too low for ELMo, which applies
    its softmax twice, once per direction.
    """
    if not isinstance(batches, CountsTokens):
        return {}
    unread = objective.unread_weights() if isinstance(objective, PartlyRead) else 0
    weights = matrix_parameters(objective) - unread
    return {"tokens": batches.tokens_per_step, "flops": round(6 * weights * batches.tokens_per_step)}


def flops_utilisation(flops_per_second: float, chip: str, n_chips: int) -> float | None:
    """Compute FLOPs per second as a share of the peak of `n_chips` chips (Chowdhery et al. 2022, PaLM, section 4.1).

    chip: the full name of the chip. The result is None for an unknown chip.
    """
    peak = next((peak for name, peak in _PEAK_FLOPS.items() if name in chip), None)
    return None if peak is None else flops_per_second / (n_chips * peak)


def product_rate(dtype: torch.dtype) -> float:
    """Measure the FLOPs per second of this process for products of square matrices in `dtype`.

    The result is the best rate of a few products. Training cannot exceed this rate on the same processors under the
    same load.
    """
    left, right = torch.ones(2, _SIDE, _SIDE, dtype=dtype)
    multiplied, seconds = times(right, left), []
    for _ in range(_PRODUCTS):
        started = time.perf_counter()
        multiplied(left)
        seconds.append(time.perf_counter() - started)
    return 2 * _SIDE**3 / min(seconds)
