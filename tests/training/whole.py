"""A validation that a function makes of the whole objective."""

from collections.abc import Callable, Sequence

from torch import nn

from retable.data.batches import Pieces


class Whole:
    def __init__(self, validate: Callable[[nn.Module], dict[str, float]]):
        self._validate = validate

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        return Pieces(1, lambda _: "all")

    def measuring(self, objective: nn.Module) -> Callable[[str], dict[str, float]]:
        return lambda _: self._validate(objective)

    def total(self, measured: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
        return measured[0][0]
