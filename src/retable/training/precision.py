"""The choice of a numeric precision that the hardware supports."""

import torch

from retable.core.errors import UsageError


def fastest_precision(accelerator: str) -> str:
    """Return `bf16-mixed` on a GPU that multiplies bf16 in hardware, otherwise `32-true`.

    On CPUs the precision is always `32-true`, so that all CPUs compute the same cells.

    accelerator: one of Lightning's accelerator names cpu, gpu and auto.
    """
    fast = _on_gpu(accelerator) and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if fast else "32-true"


def require_precision(precision: str, accelerator: str) -> None:
    """Raise UsageError if `precision` is bf16 on a CPU on which oneDNN does not support bf16.

    On such a CPU, torch's LSTMs fail in the middle of a training, and matrix products take several times as long as in
    fp32.
    """
    none = torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if "bf16" in precision and none and not _on_gpu(accelerator):
        raise UsageError(f"trainer.precision={precision}: this processor does not support bf16; write 32-true, or auto")


def multiply_in(precision: str, accelerator: str) -> None:
    """Disable TF32 in recurrent layers on a GPU if the precision is `32-true`, and enable TF32 otherwise.

    cuDNN's default is TF32, which has a mantissa of 10 bits instead of 23.
    """
    if _on_gpu(accelerator):
        torch.backends.cudnn.allow_tf32 = precision != "32-true"


def _on_gpu(accelerator: str) -> bool:
    return accelerator != "cpu" and torch.cuda.is_available()
