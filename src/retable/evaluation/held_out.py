"""What an objective's own metrics say of held-out text: of models that give no likelihood of a text, such as BERT."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch

from retable.data.batches import Batches, Pieces, measured
from retable.data.bucketed import on_device
from retable.objectives.base import Objective

SEED = 0  # of the corruption: the same for all that are measured, whatever seed they were trained with


class MeanMetrics:
    """The mean of the metrics of `objective.loss` over the batches of one epoch; `loss` is one of them.

    Always with the same random numbers, and torch's generator is afterwards what it was. Processes share the rows of
    each batch, as in training, for a batch may go on from the state after the one before; a metric that training does
    not weigh, a recall, is then the mean of theirs.
    """

    def __init__(self, batches: Batches):
        self._batches = batches

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        return Pieces(self._batches.steps_per_epoch, lambda step: self._batches.batch(step, rank, world))

    def measuring(self, objective: Objective) -> Callable[[Any], dict[str, float]]:
        device = next(objective.parameters()).device
        gpus = [device] if device.type == "cuda" else []
        steps, state, drawn = count(), None, None

        @torch.inference_mode()
        def measure(batch: Any) -> dict[str, float]:
            nonlocal state, drawn
            with torch.random.fork_rng(gpus):
                if drawn is None:
                    torch.manual_seed(SEED)
                else:
                    torch.set_rng_state(drawn[0])
                    for gpu, of_gpu in zip(gpus, drawn[1:], strict=True):
                        torch.cuda.set_rng_state(of_gpu, gpu)
                _, metrics, state = objective.loss(on_device(device, batch), state, next(steps))
                drawn = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, gpus)]
            return {name: value.double().item() for name, value in metrics.items()}

        return measure

    def total(self, measured: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
        means: list[dict[str, float]] = []
        for of_process in measured:
            sums = dict.fromkeys(of_process[0], 0.0)
            for metrics in of_process:
                sums = {name: sums[name] + value for name, value in metrics.items()}
            means.append({name: total / len(of_process) for name, total in sums.items()})
        return {name: sum(of_process[name] for of_process in means) / len(means) for name in means[0]}


def mean_metrics(objective: Objective, batches: Batches) -> dict[str, float]:
    """MeanMetrics, without dropout; the objective's mode is afterwards what it was."""
    training = objective.training
    objective.eval()
    metrics = measured(MeanMetrics(batches), objective)
    objective.train(training)
    return metrics


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
