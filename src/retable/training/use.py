"""The measurement of trained systems with Lightning's `Trainer.predict`."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import nn

from retable.data.batches import LazyBatches, Measure, measured_by
from retable.training.data import Data
from retable.training.devices import limit_threads
from retable.training.fit import quiet_lightning
from retable.training.module import Training, all_gather

MACHINE = {"accelerator", "devices", "num_nodes", "precision", "strategy"}  # Trainer settings for the hardware


@contextlib.contextmanager
def used_on(modules: Sequence[nn.Module], trainer: Mapping[str, Any]) -> Iterator[None]:
    """Move trained modules to this process's device; inside the `with` block, measures run in a Trainer.

    With several devices, the Trainer starts the other processes. Each process has all weights, and measures a part of
    the batches.
    """
    if trainer.get("strategy") == "fsdp":
        trainer = {**trainer, "strategy": "ddp"}
    with quiet_lightning():
        runner = L.Trainer(
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            inference_mode=False, use_distributed_sampler=False,
            **{name: trainer[name] for name in MACHINE & trainer.keys()},
        )  # fmt: skip
    if runner.num_devices > 1 and runner.strategy.root_device.type == "cpu":
        limit_threads(runner.num_devices)
    used: Any = nn.ModuleList(modules)  # the Trainer moves all modules if they are in one module
    device, module = runner.strategy.root_device, Training(used, seed=0, max_steps=1)
    module.to(device)

    def run(measure: Measure, objective: Any) -> Sequence[Sequence[Any]]:
        with quiet_lightning():
            results = runner.predict(module, datamodule=Data(None, prediction=_Bound(measure, objective)))
        module.to(device)  # Lightning has moved the module to the CPU
        return all_gather(results or [])

    with measured_by(run):
        yield


class _Bound:
    """A Measure that measures a given objective instead of the module that the Trainer passes."""

    def __init__(self, measure: Measure, objective: Any):
        self._measure, self._objective = measure, objective

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return self._measure.batches(rank, world)

    def step(self, objective: Any) -> Callable[[Any], Any]:
        # Lightning disables gradients in `predict`, but some measures need gradients.
        return torch.enable_grad()(self._measure.step(self._objective))

    def compute(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        return self._measure.compute(measured)
