"""Models too large for a device: their blocks, one like the other, computed twice or kept in shares."""

import copy
from functools import partial
from typing import Any, TypeVar

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Optimizer
from torch.utils.checkpoint import checkpoint

from retable.core.errors import UsageError
from retable.models.base import blocks_of

Module = TypeVar("Module", bound=nn.Module)

METHODS = ("loss", "log_prob", "next_log_prob", "remember")  # by which an objective, or a block, is called


def recompute_blocks(model: nn.Module) -> None:
    """Let every block keep what goes into it alone, and compute the rest once more on the way back (Chen et al. 2016):
    the memory of activations falls to that of a block, a step takes about a third more. UsageError without blocks."""
    if not (blocks := blocks_of(model)):
        raise UsageError(f"{type(model).__name__} has no blocks to compute twice; write recompute=false")
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def shard(objective: nn.Module, mesh: Any) -> None:
    """Leave each process of `mesh` its share of every weight; a block's are together while it is computed (FSDP2; Zhao
    et al. 2023)."""
    for module in [*blocks_of(objective), objective]:
        fully_shard(module, mesh=mesh)
        for method in METHODS:
            if hasattr(module, method):  # torch registers methods by name, and refuses one that is not there
                register_fsdp_forward_method(module, method)


def replica(module: Module) -> Module:
    """A copy with weights of its own, compiled where the module is, which a copy is not by itself."""
    copied = copy.deepcopy(module)
    for own, other in zip(module.modules(), copied.modules(), strict=True):
        if own._compiled_call_impl is not None:
            other.compile()
    return copied


def gather(shared: nn.Module, whole: nn.Module) -> None:
    """Put what the processes have of the weights of `shared` into `whole`, an unshared copy. All must call it, while
    the shares are where the processes can send them from: NCCL knows of GPUs alone."""
    for own, share in zip(whole.state_dict().values(), shared.state_dict().values(), strict=True):
        own.copy_(share.full_tensor() if isinstance(share, DTensor) else share)


class FullySharded(ModelParallelStrategy):
    """Lightning's strategy of FSDP2, over all processes of all nodes, with whole checkpoints."""

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Of plain SGD, which keeps nothing of a weight, the rates alone: Lightning 2.6 looks at the first of what is
        kept, and ends where there is none."""
        optimizers = self.optimizers
        self.optimizers = [each for each in optimizers if not _is_plain_sgd(each)]
        checkpoint: dict[str, Any] = super().load_checkpoint(*args, **kwargs)
        self.optimizers = optimizers
        for optimizer, kept in zip(optimizers, checkpoint["optimizer_states"], strict=True):
            if _is_plain_sgd(optimizer):
                for group, saved in zip(optimizer.param_groups, kept["param_groups"], strict=True):
                    group |= {name: value for name, value in saved.items() if name != "params"}
        return checkpoint


def _is_plain_sgd(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, SGD) and all(group["momentum"] == 0 for group in optimizer.param_groups)
