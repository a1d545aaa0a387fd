"""Protocols of training batches and of held-out measures, and how processes share the work.

`measured`, `mapped` and `once` run in the current process, or on all processes inside `measured_by`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

Piece = TypeVar("Piece")
Found = TypeVar("Found")


class Batches(Protocol):
    """Training batches as a pure function of the step: a resumed run gets the same batches as an uninterrupted one."""

    steps_per_epoch: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return the rows of process `rank` of `world` at a step."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """Batches of text that know their mean number of tokens per step."""

    @property
    def tokens_per_step(self) -> float: ...


@runtime_checkable
class Scaled(Protocol):
    """A batch that scales the learning rate of its step."""

    @property
    def scale(self) -> float:
        """Return the factor to multiply the schedule's learning rate by."""
        ...


class Pieces:
    """A sequence of `number` pieces of data; `make(i)` builds piece i on demand, or returns None for padding."""

    def __init__(self, number: int, make: Callable[[int], Any]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, range(self._number))


class Measure(Protocol):
    """A measurement of an objective on held-out data, computed piece by piece and shared among processes."""

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        """Return the pieces of process `rank` of `world`; every process gets the same number, padded with None."""
        ...

    def measuring(self, objective: Any) -> Callable[[Any], Any]:
        """Return a function that measures one piece; it is called on the pieces of a share in order."""
        ...

    def total(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Return the metrics from the results of all processes, a sequence of results per process.

        A sequence may cover only the beginning of a share. Padding pieces have the result None.
        """
        ...


def share(pieces: Sequence[Any], make: Callable[[Any], Any], rank: int, world: int) -> Pieces:
    """Return every `world`-th piece from piece `rank` on, padded with None to the same number for all processes."""
    own = pieces[rank::world]
    return Pieces(-(-len(pieces) // world), lambda i: make(own[i]) if i < len(own) else None)


def in_order(measured: Sequence[Sequence[Any]]) -> list[Any]:
    """Merge the processes' results into the order of the pieces that `share` distributed."""
    return [result for turn in zip(*measured, strict=True) for result in turn if result is not None]


Run = Callable[[Measure, Any], Sequence[Sequence[Any]]]
_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


@contextlib.contextmanager
def measured_by(run: Run) -> Iterator[None]:
    """Use `run` for all measurements inside the block.

    `run(measure, objective)` returns a sequence of results per process.
    """
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def found(measure: Measure, objective: Any) -> Sequence[Sequence[Any]]:
    """Measure all pieces, and return a sequence of results per process.

    Without `measured_by`, the current process measures all pieces.
    """
    if (run := _RUN.get()) is not None:
        return run(measure, objective)
    measure_piece = measure.measuring(objective)
    return [[None if piece is None else measure_piece(piece) for piece in measure.pieces()]]


def measured(measure: Measure, objective: Any) -> dict[str, float]:
    """Measure an objective, and return its metrics."""
    return measure.total(found(measure, objective))


def mapped(find: Callable[[Piece], Found], pieces: Sequence[Piece]) -> list[Found]:
    """Apply `find` to each piece, and return the results in order. Processes share the pieces; all get all results."""
    return in_order(found(_Mapped(find, pieces), None))


def once(find: Callable[[], Found]) -> Found:
    """Call `find` in the first process only, and return its result in all processes."""
    return mapped(lambda _: find(), [None])[0]


class _Mapped:
    """A function of pieces, as a Measure without metrics."""

    def __init__(self, find: Callable[[Any], Any], pieces: Sequence[Any]):
        self._find, self._pieces = find, pieces

    def pieces(self, rank: int = 0, world: int = 1) -> Pieces:
        return share(self._pieces, lambda piece: (piece,), rank, world)

    def measuring(self, objective: Any) -> Callable[[tuple[Any]], Any]:
        return lambda piece: self._find(*piece)

    def total(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        return {}
