"""The choice of a numeric precision that the hardware supports."""

import torch

from retable.core.errors import UsageError


def fastest_precision(accelerator: str) -> str:
    """Return `bf16-mixed` if this machine multiplies bf16 in hardware, otherwise `32-true`.

    A CPU multiplies bf16 in hardware if it has AMX or AVX-512 BF16.

    accelerator: one of Lightning's accelerator names cpu, gpu and auto.
    """
    if _on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        fast = any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
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
