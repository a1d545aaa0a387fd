"""Trained weights in and out, and how much arithmetic a token costs. Needs no Lightning."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.tensor import DTensor

from retable.core.errors import UsageError


def save_weights(module: nn.Module, path: Path) -> None:
    """Write the parameters, each once (a tied one under its first name): the same weights give the same bytes."""
    save_file(whole_weights(module), path)


def whole_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters as `save_weights` has them. Where each process has a share of them, all must call it."""
    weights = ((name, p.detach()) for name, p in module.named_parameters())
    whole = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in weights}
    return {name: p.contiguous() for name, p in whole.items()}


def load_weights(module: nn.Module, path: Path, prefix: str = "") -> None:
    """Read what `save_weights` wrote, or the part of it whose names begin with `prefix`, into `module`.

    Raises UsageError for a damaged file, or one that holds another model.
    """
    put_weights(module, read_weights(path), path, prefix)


def put_weights(module: nn.Module, weights: Mapping[str, torch.Tensor], source: Path, prefix: str = "") -> None:
    """The same of weights that were read from `source`."""
    weights = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
    parameters = dict(module.named_parameters())
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in parameters.items()}:
        raise UsageError(f"{source} holds the weights of another model than {type(module).__name__} as configured")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a `model.safetensors`. Raises UsageError for a damaged file."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path} is damaged ({error}); remove it and run `dvc repro` to make it again") from None


def matrix_parameters(module: nn.Module) -> int:
    """The weights that a token is multiplied with: all matrices but tables that are only looked up in."""
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    multiplied = {id(m.weight) for m in module.modules() if isinstance(m, nn.Linear)}  # a tied table is both
    return sum(p.numel() for p in module.parameters() if p.ndim >= 2 and (id(p) not in tables or id(p) in multiplied))
