"""What batches of any kind are to those who train and measure by them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable


class Batches(Protocol):
    """Training batches as a pure function of the step: killed and resumed sees what uninterrupted would have seen."""

    steps_per_epoch: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """The share of process `rank` of `world`."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """Batches of text that say how many tokens a step takes, on average."""

    @property
    def tokens_per_step(self) -> float: ...


@runtime_checkable
class Scaled(Protocol):
    """A batch with a learning rate of its own."""

    @property
    def scale(self) -> float:
        """How many times that of the schedule."""
        ...


class Pieces:
    """So many pieces of data, each made when it is asked for; None stands where there is nothing."""

    def __init__(self, number: int, make: Callable[[int], Any]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, range(self._number))


class Measure(Protocol):
    """What is measured of an objective on held-out data, piece by piece, the pieces divided among processes."""

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        """The share of process `rank` of `world`: of each process as many."""
        ...

    def measuring(self, objective: Any) -> Callable[[Any], Any]:
        """What measures one piece of a share after the other, from the first on."""
        ...

    def total(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        """The metrics, of what each process has measured of its share, or of the beginning of it; None where there was
        nothing."""
        ...


def share(pieces: Sequence[Any], make: Callable[[Any], Any], rank: int, world: int) -> Pieces:
    """Every so many-th of the pieces for each process."""
    mine = pieces[rank::world]
    return Pieces(-(-len(pieces) // world), lambda i: make(mine[i]) if i < len(mine) else None)


def in_order(measured: Sequence[Sequence[Any]]) -> list[Any]:
    """What the processes have found of the pieces that `share` gave them, in the order of the pieces."""
    return [found for turn in zip(*measured, strict=True) for found in turn if found is not None]


def measured(measure: Measure, objective: Any) -> dict[str, float]:
    """The metrics of an objective, all in this process."""
    return measure.total([list(map(measure.measuring(objective), measure.pieces()))])
