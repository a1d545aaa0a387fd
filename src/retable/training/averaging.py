"""Averaging of the weights over the last part of training (Polyak and Juditsky 1992)."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from retable.core.settings import NonNegativeInt


def non_monotone(losses: Sequence[float], patience: NonNegativeInt) -> bool:
    """Check whether averaging begins: the last loss exceeds a loss more than `patience` validations older.

    The check follows the code of Merity, Keskar and Socher (2018). Algorithm 1 of their paper instead compares the last
    loss with the best of the last `patience` losses.
    """
    before = losses[:-1]
    return len(before) > patience and losses[-1] > min(before[: len(before) - patience])


class Average:
    """The mean, in fp32, of a module's weights after each step since this object was created."""

    def __init__(self, module: nn.Module):
        self._module = module
        self.steps = 0
        self.tensors: dict[str, Tensor] = {name: p.detach().float().clone() for name, p in module.named_parameters()}

    def update(self) -> None:
        """Add the current weights to the mean."""
        self.steps += 1
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                self.tensors[name].lerp_(parameter.float(), 1 / self.steps)

    def whole(self) -> dict[str, Tensor]:
        """Return the mean, for a checkpoint.

        If weights are sharded over processes, all processes must call this method.
        """
        return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in self.tensors.items()}

    def take(self, steps: int, whole: Mapping[str, Tensor]) -> None:
        """Restore a mean from a checkpoint: `whole`, the mean of weights over `steps` steps."""
        self.steps = steps
        for name, own in self.tensors.items():
            mean = whole[name].to(own.device)
            own.copy_(distribute_tensor(mean, own.device_mesh, own.placements) if isinstance(own, DTensor) else mean)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the module's weights by the averaged weights inside a `with` block."""
        own = {name: p.detach().clone() for name, p in self._module.named_parameters()}
        self.apply()
        try:
            yield
        finally:
            self._set(own)

    def apply(self) -> None:
        """Replace the module's weights by the averaged weights permanently."""
        if self.steps:
            self._set(self.tensors)

    def _set(self, tensors: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                parameter.copy_(tensors[name])
