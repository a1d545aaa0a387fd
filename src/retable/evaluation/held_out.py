"""What an objective's own metrics say of held-out text: of models that give no likelihood of a text, such as BERT."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from retable.data.batches import Batches
from retable.data.bucketed import on_device
from retable.objectives.base import Objective

SEED = 0  # of the corruption: the same for all that are measured, whatever seed they were trained with


@torch.inference_mode()
def mean_metrics(objective: Objective, batches: Batches) -> dict[str, float]:
    """The mean of the metrics of `objective.loss` over the batches of one epoch; `loss` is one of them.

    Without dropout, and always with the same random numbers; the objective's mode and torch's generator are afterwards
    what they were.
    """
    training, device = objective.training, next(objective.parameters()).device
    sums: dict[str, Tensor] = {}
    state = None
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(SEED)
        objective.eval()
        for step in range(batches.steps_per_epoch):
            _, metrics, state = objective.loss(on_device(device, batches.batch(step)), state, step)
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + value.double()
        objective.train(training)
    return {name: float(total) / batches.steps_per_epoch for name, total in sums.items()}


class PretrainedObjective:
    """A trained objective with the batches, by split, that it is measured on, corrupted as in training."""

    protocol = "corrupted as in training"

    def __init__(self, objective: Objective, batches: Callable[[str], Batches]):
        self.objective, self._batches = objective, batches

    def held_out(self, split: str) -> dict[str, float]:
        return mean_metrics(self.objective, self._batches(split))


class HeldOut:
    """The benchmark: the metrics of one split; `inputs` are the files that they depend on."""

    asks_for = PretrainedObjective

    def __init__(self, tokens: str, split: str = "test"):
        self.split = split
        names = ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")
        self.inputs = [Path(tokens) / name for name in names]

    def __call__(self, system: PretrainedObjective, folder: Path) -> dict[str, float]:
        return {f"held_out/{name}": value for name, value in system.held_out(self.split).items()}
