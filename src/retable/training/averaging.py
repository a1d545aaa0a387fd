"""The average of the weights over the last part of a training (Polyak and Juditsky 1992)."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from retable.core.settings import NonNegativeInt


def non_monotone(losses: Sequence[float], patience: NonNegativeInt) -> bool:
    """Whether averaging begins: the last validation loss is no better than the best of those before it, the `patience`
    last of which don't count. So it is in the code of Merity, Keskar and Socher 2018; their algorithm 1 says the best
    of the `patience` last."""
    before = losses[:-1]
    return len(before) > patience and losses[-1] > min(before[: len(before) - patience])


class Average:
    """The mean of a module's weights since it was made, one step after the other; all of them in fp32."""

    def __init__(self, module: nn.Module):
        self._module = module
        self.steps = 0
        self.tensors: dict[str, Tensor] = {name: p.detach().float().clone() for name, p in module.named_parameters()}

    def update(self) -> None:
        """Count the weights of now in."""
        self.steps += 1
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                self.tensors[name].lerp_(parameter.float(), 1 / self.steps)

    def whole(self) -> dict[str, Tensor]:
        """The mean, for a checkpoint. Where each process has a share of the weights, all must call it."""
        return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in self.tensors.items()}

    def take(self, steps: int, whole: Mapping[str, Tensor]) -> None:
        """Go on from the mean of a checkpoint, of so many steps."""
        self.steps = steps
        for name, own in self.tensors.items():
            mean = whole[name].to(own.device)
            own.copy_(distribute_tensor(mean, own.device_mesh, own.placements) if isinstance(own, DTensor) else mean)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The module has the averaged weights in the body."""
        own = {name: p.detach().clone() for name, p in self._module.named_parameters()}
        self.apply()
        try:
            yield
        finally:
            self._set(own)

    def apply(self) -> None:
        """Give the module the averaged weights for good."""
        if self.steps:
            self._set(self.tensors)

    def _set(self, tensors: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._module.named_parameters():
                parameter.copy_(tensors[name])
