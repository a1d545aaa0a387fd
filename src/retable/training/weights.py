"""Functions that save, load and count trained weights. This module does not import Lightning."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.tensor import DTensor

from retable.core.errors import UsageError
from retable.nn.batch_norm import BatchNorm


def save_weights(module: nn.Module, path: Path) -> None:
    """Write a module's weights to a file, under the names that `saved` returns.

    Equal weights give files of equal bytes.
    """
    save_file(whole_weights(module), path)


def saved(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a module, and the running averages of its batch norms, by name.

    A tied parameter is included once, under its first name.
    """
    averages = {
        f"{name}.{own}": buffer
        for name, part in module.named_modules()
        if isinstance(part, BatchNorm)
        for own, buffer in part.named_buffers()
    }
    return {**dict(module.named_parameters()), **averages}


def whole_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors that `save_weights` writes. If weights are sharded, all processes must call this function."""
    weights = ((name, tensor.detach()) for name, tensor in saved(module).items())
    whole = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in weights}
    return {name: p.contiguous() for name, p in whole.items()}


def load_weights(module: nn.Module, path: Path, prefix: str = "") -> None:
    """Load weights into `module` from a file that `save_weights` wrote.

    prefix: load only weights with names that begin with this prefix, and remove the prefix from the names.

    Raises: UsageError: the file is damaged or belongs to another model.
    """
    put_weights(module, read_weights(path), path, prefix)


def put_weights(module: nn.Module, weights: Mapping[str, torch.Tensor], source: Path, prefix: str = "") -> None:
    """Copy weights into `module`, as `load_weights` does. `source` is the file that an error message names."""
    weights = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    own = saved(module)
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in own.items()}:
        raise UsageError(f"{source} has weights that do not fit the model {type(module).__name__} as configured")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a `model.safetensors` file. Raise UsageError if the file is damaged."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path} is damaged ({error}); remove the file and run `dvc repro` to make it again") from None


def matrix_parameters(module: nn.Module) -> int:
    """Count the weights in matrices that multiply tokens: all matrices except tables that are only looked up."""
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    multiplied = {id(m.weight) for m in module.modules() if isinstance(m, nn.Linear)}  # includes tied tables
    return sum(p.numel() for p in module.parameters() if p.ndim >= 2 and (id(p) not in tables or id(p) in multiplied))
