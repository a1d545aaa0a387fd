"""Which precisions a machine multiplies in, and in which the fastest."""

import torch

from retable.core.errors import UsageError


def fastest_precision(accelerator: str) -> str:
    """Lightning's `bf16-mixed` where this machine's GPU, or else its processor (AMX, AVX-512 BF16), multiplies bf16 in
    hardware, else `32-true`. `accelerator` is Lightning's: cpu, gpu, or auto."""
    if _on_gpu(accelerator):
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        fast = any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
    return "bf16-mixed" if fast else "32-true"


def require_precision(precision: str, accelerator: str) -> None:
    """Raise UsageError for bf16 on a processor that oneDNN has none for: torch's LSTMs would end there in the middle,
    and what can be multiplied takes several times as long as in fp32."""
    none = torch.backends.mkldnn.is_available() and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if "bf16" in precision and none and not _on_gpu(accelerator):
        raise UsageError(f"trainer.precision={precision}: this processor has no bf16; write 32-true, or auto")


def multiply_in(precision: str, accelerator: str) -> None:
    """Keep a GPU's recurrent layers from TF32 where the precision is `32-true`: cuDNN takes it by default, with ten
    bits of a number for 23."""
    if _on_gpu(accelerator):
        torch.backends.cudnn.allow_tf32 = precision != "32-true"


def _on_gpu(accelerator: str) -> bool:
    return accelerator != "cpu" and torch.cuda.is_available()
