"""The Lightning data module: training batches, and measures of held-out data."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import lightning as L
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from retable.data.batches import Batches, Measure
from retable.training.blocks import FullySharded


def _pinned(tensor: Tensor) -> Tensor:
    return tensor.contiguous().pin_memory() if tensor.device.type == "cpu" else tensor


class Data(L.LightningDataModule):
    """Training batches, and Measures for validation, test and prediction; a part that is None is skipped.

    With FSDP, every process measures all held-out batches, because the weights are sharded over the processes.
    """

    def __init__(
        self,
        batches: Batches | None,
        validation: Measure | None = None,
        test: Measure | None = None,
        prediction: Measure | None = None,
    ):
        super().__init__()
        self.batches, self.validation, self.test, self.prediction = batches, validation, test, prediction

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move a batch to a device; a copy to a GPU starts from pinned memory, so that the CPU does not wait."""
        if device.type == "cuda":
            batch = apply_to_collection(batch, Tensor, _pinned)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def train_dataloader(self) -> "Steps":
        assert self.trainer is not None and self.batches is not None
        return Steps(self.batches, self.trainer)

    def val_dataloader(self) -> Any:
        return self._held_out_batches(self.validation)

    def test_dataloader(self) -> Any:
        return self._held_out_batches(self.test)

    def predict_dataloader(self) -> Any:
        return self._held_out_batches(self.prediction)

    def _held_out_batches(self, measure: Measure | None) -> Any:
        if measure is None:
            return []
        trainer = self.trainer
        assert trainer is not None
        if isinstance(trainer.strategy, FullySharded):
            return measure.batches()
        return measure.batches(trainer.global_rank, trainer.world_size)


class Steps:
    """An iterable over this process's batches, starting at the step that the training has reached.

    The length of the iterable is the number of batches in an epoch. With Lightning's `overfit_batches`, every epoch
    starts with the first batch.
    """

    def __init__(self, batches: Batches, trainer: Any):
        self._held_out_batches, self._trainer = batches, trainer

    def __len__(self) -> int:
        return self._held_out_batches.steps_per_epoch * self._trainer.accumulate_grad_batches

    def __iter__(self) -> Iterator[Any]:
        trainer, parts = self._trainer, self._trainer.accumulate_grad_batches
        first, world = trainer.global_rank * parts, trainer.world_size * parts
        steps = count(0 if trainer.overfit_batches else trainer.global_step)
        return (self._held_out_batches.batch(step, first + part, world) for step in steps for part in range(parts))
