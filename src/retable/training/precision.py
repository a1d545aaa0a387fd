"""Which precision a machine multiplies fastest in."""

import torch


def fastest_precision(accelerator: str) -> str:
    """Lightning's `bf16-mixed` where this machine's GPU, or else its processor (AMX, AVX-512 BF16), multiplies bf16 in
    hardware, else `32-true`. `accelerator` is Lightning's: cpu, gpu, or auto."""
    if accelerator != "cpu" and torch.cuda.is_available():
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        fast = any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16"))
    return "bf16-mixed" if fast else "32-true"
