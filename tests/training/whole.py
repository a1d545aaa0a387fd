"""A validation that a function makes of the whole objective, and batches that are the steps themselves."""

from collections.abc import Callable, Sequence

from torch import nn

from retable.data.batches import Pieces


class Numbers:
    """The step itself for a batch."""

    def __init__(self, steps_per_epoch: int = 100):
        self.steps_per_epoch = steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> int:
        return step


class Whole:
    def __init__(self, validate: Callable[[nn.Module], dict[str, float]]):
        self._validate = validate

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        return Pieces(1, lambda _: "all")

    def measuring(self, objective: nn.Module) -> Callable[[str], dict[str, float]]:
        return lambda _: self._validate(objective)

    def total(self, measured: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
        return measured[0][0]
