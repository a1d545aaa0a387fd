"""What batches of any kind are to those who train and measure by them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

Piece = TypeVar("Piece")
Found = TypeVar("Found")


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


Run = Callable[[Measure, Any], Sequence[Sequence[Any]]]
_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


@contextlib.contextmanager
def measured_by(run: Run) -> Iterator[None]:
    """Have `run` measure the pieces inside the block. `run(measure, objective)` returns what each process found."""
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def found(measure: Measure, objective: Any) -> Sequence[Sequence[Any]]:
    """What each process finds of its share of the pieces. Without `measured_by` this process measures all of them."""
    if (run := _RUN.get()) is not None:
        return run(measure, objective)
    measure_piece = measure.measuring(objective)
    return [[None if piece is None else measure_piece(piece) for piece in measure.pieces()]]


def measured(measure: Measure, objective: Any) -> dict[str, float]:
    """The metrics of an objective."""
    return measure.total(found(measure, objective))


def mapped(find: Callable[[Piece], Found], pieces: Sequence[Piece]) -> list[Found]:
    """What `find` gives of each piece, in order. Processes share the pieces, and all get all results."""
    return in_order(found(_Mapped(find, pieces), None))


def once(find: Callable[[], Found]) -> Found:
    """What `find` gives: the first process finds it, and all get it."""
    return mapped(lambda _: find(), [None])[0]


class _Mapped:
    """A function of pieces as a Measure without metrics."""

    def __init__(self, find: Callable[[Any], Any], pieces: Sequence[Any]):
        self._find, self._pieces = find, pieces

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        return share(self._pieces, lambda piece: (piece,), rank, world)

    def measuring(self, objective: Any) -> Callable[[tuple[Any]], Any]:
        return lambda piece: self._find(*piece)

    def total(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        return {}
