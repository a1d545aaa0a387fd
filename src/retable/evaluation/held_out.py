"""Metrics of the training objective on held-out text.

The benchmark is for models that assign no probability to a whole text, such as BERT.
"""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch

from retable.data.batches import Batches, LazyBatches, measured
from retable.data.bucketed import on_device
from retable.objectives.base import Objective

SEED = 0  # seed of the random corruption of held-out text, the same for all systems and training seeds


class MeanMetrics:
    """Averages the metrics that `objective.loss` returns, among them `loss`, over one epoch.

    Every measurement uses the same random numbers, and restores torch's generators afterwards. As in training, each
    process reads some rows of every batch, because a batch may depend on the state after the previous batch. The mean
    over processes is unweighted: recall, for example, is the plain mean of the recalls that the processes measure.
    """

    def __init__(self, batches: Batches):
        self._batches = batches

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return LazyBatches(self._batches.steps_per_epoch, lambda step: self._batches.batch(step, rank, world))

    def step(self, objective: Objective) -> Callable[[Any], dict[str, float]]:
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

    def compute(self, measured: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
        means: list[dict[str, float]] = []
        for of_process in measured:
            sums = dict.fromkeys(of_process[0], 0.0)
            for metrics in of_process:
                sums = {name: sums[name] + value for name, value in metrics.items()}
            means.append({name: total / len(of_process) for name, total in sums.items()})
        return {name: sum(of_process[name] for of_process in means) / len(means) for name in means[0]}


def mean_metrics(objective: Objective, batches: Batches) -> dict[str, float]:
    """Compute the mean metrics of an objective on held-out batches, without dropout.

    The objective's training mode is restored afterwards.

    Returns: maps the name of each metric to its mean over all batches.
    """
    training = objective.training
    objective.eval()
    metrics = measured(MeanMetrics(batches), objective)
    objective.train(training)
    return metrics


class PretrainedObjective:
    """A trained objective with the batches of each split, which are corrupted as in training.

    Args:
        batches: a function that maps the name of a split to the split's batches.
    """

    protocol = "corrupted as in training"

    def __init__(self, objective: Objective, batches: Callable[[str], Batches]):
        self.objective, self._batches = objective, batches

    def held_out(self, split: str) -> dict[str, float]:
        return mean_metrics(self.objective, self._batches(split))


class HeldOut:
    """A benchmark of the training objective's own metrics on one split.

    `inputs` lists the files that the scores depend on.

    Args:
        tokens: folder that the `tokenize` stage wrote.
    """

    requires = PretrainedObjective

    def __init__(self, tokens: str, split: str = "test"):
        self.split = split
        names = ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")
        self.inputs = [Path(tokens) / name for name in names]

    def __call__(self, system: PretrainedObjective, folder: Path) -> dict[str, float]:
        return {f"held_out/{name}": value for name, value in system.held_out(self.split).items()}
