"""Methods that save memory for large models: recomputed activations, and weights sharded over processes."""

from functools import partial
from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Optimizer
from torch.utils.checkpoint import checkpoint

from retable.core.errors import UsageError
from retable.models.base import blocks_of

METHODS = ("loss", "log_prob", "next_log_prob", "remember")  # methods other than `forward` that use the weights


def recompute_blocks(model: nn.Module) -> None:
    """Make each block store only its input, and recompute activations in the backward pass (Chen et al. 2016).

    All activations together then need about as much memory as those of one block, and a step takes about a third
    longer.

    Raises: UsageError: the model has no blocks.
    """
    if not (blocks := blocks_of(model)):
        raise UsageError(f"{type(model).__name__} has no blocks to recompute; write recompute=false")
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def shard(objective: nn.Module, mesh: Any) -> None:
    """Shard every weight over the processes of `mesh` (FSDP2; Zhao et al. 2023).

    The whole weights of a block are gathered only while the block is computed.
    """
    for module in [*blocks_of(objective), objective]:
        fully_shard(module, mesh=mesh)
        for method in METHODS:
            if hasattr(module, method):  # torch refuses to register a missing method
                register_fsdp_forward_method(module, method)


def gather(shared: nn.Module, whole: nn.Module) -> None:
    """Copy the weights of a sharded module, `shared`, into its unsharded copy `whole`.

    All processes must call this function while the shards are on devices that can communicate: on GPUs if NCCL is used.
    """
    for own, share in zip(whole.state_dict().values(), shared.state_dict().values(), strict=True):
        own.copy_(share.full_tensor() if isinstance(share, DTensor) else share)


class FullySharded(ModelParallelStrategy):
    """Lightning's strategy for FSDP2, over all processes of all nodes, with unsharded checkpoints."""

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Load a checkpoint; for plain SGD, load only the settings of its parameter groups.

        Plain SGD has no state per weight. Lightning 2.6 reads the optimizer state of the first weight, and fails if
        there is no such state.
        """
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
