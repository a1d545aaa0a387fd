"""Interfaces for training batches and for measurements on held-out data; functions that divide work among processes.

`measured`, `mapped` and `once` use only the current process outside a `measured_by` block, and all processes inside
such a block.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

Input = TypeVar("Input")
Result = TypeVar("Result")


class Batches(Protocol):
    """Training batches as a pure function of the step: a resumed run and an uninterrupted run get the same batches."""

    steps_per_epoch: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return the rows of process number `rank` of `world` at a step.

        Args:
            step: number of the batch, counted from 0 across epochs.
        """
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """Batches of text with a known mean number of tokens per step."""

    @property
    def tokens_per_step(self) -> float: ...


@runtime_checkable
class Scaled(Protocol):
    """A batch that multiplies the learning rate of its training step by a factor."""

    @property
    def scale(self) -> float:
        """Return the factor by which the schedule's learning rate is multiplied."""
        ...


class LazyBatches:
    """A sequence of `number` batches, built on demand: `make(i)` returns batch i, or None for a padding batch."""

    def __init__(self, number: int, make: Callable[[int], Any]):
        self._number, self._make = number, make

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, range(self._number))


class Measure(Protocol):
    """A measurement of an objective on held-out data, computed batch by batch and shared among processes."""

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        """Return the batches of process number `rank` of `world`, built on demand.

        Every process gets the same number of batches: a process with fewer batches gets None for each missing batch.
        """
        ...

    def step(self, objective: Any) -> Callable[[Any], Any]:
        """Return a function that measures one batch.

        A process calls this function on its batches in order.
        """
        ...

    def compute(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        """Compute the metrics from the results of all processes.

        `measured` contains one sequence of results per process. A sequence of results may be shorter than its process's
        sequence of batches. The result of a padding batch is None.
        """
        ...


def share(inputs: Sequence[Any], make: Callable[[Any], Any], rank: int, world: int) -> LazyBatches:
    """Return the batches of process number `rank` of `world`, made from inputs `rank`, `rank` + `world` and so on.

    None is appended where needed, so that every process has the same number of batches.

    Args:
        make: builds the batch of one input.
    """
    own = inputs[rank::world]
    return LazyBatches(-(-len(inputs) // world), lambda i: make(own[i]) if i < len(own) else None)


def in_order(measured: Sequence[Sequence[Any]]) -> list[Any]:
    """Merge all processes' results into one list, in the order of `share`'s argument `inputs`."""
    return [result for turn in zip(*measured, strict=True) for result in turn if result is not None]


Run = Callable[[Measure, Any], Sequence[Sequence[Any]]]
_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


@contextlib.contextmanager
def measured_by(run: Run) -> Iterator[None]:
    """Use the function `run` for all measurements inside the `with` block.

    `run(measure, objective)` returns one sequence of results per process.
    """
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def all_results(measure: Measure, objective: Any) -> Sequence[Sequence[Any]]:
    """Measure all batches, and return one sequence of results per process.

    Outside a `measured_by` block, the current process measures all batches alone.
    """
    if (run := _RUN.get()) is not None:
        return run(measure, objective)
    step = measure.step(objective)
    return [[None if batch is None else step(batch) for batch in measure.batches()]]


def measured(measure: Measure, objective: Any) -> dict[str, float]:
    """Measure an objective on held-out data.

    Returns: metrics by name, the same in all processes.
    """
    return measure.compute(all_results(measure, objective))


def mapped(find: Callable[[Input], Result], inputs: Sequence[Input]) -> list[Result]:
    """Apply `find` to each input, and return the results in order.

    The processes divide the inputs among them, and every process gets all results.

    Args:
        find: computes the result of one input.
    """
    return in_order(all_results(_Mapped(find, inputs), None))


def once(find: Callable[[], Result]) -> Result:
    """Call `find` in the first process only, and return its result in all processes."""
    return mapped(lambda _: find(), [None])[0]


class _Mapped:
    """A Measure that applies a function to each input and has no metrics."""

    def __init__(self, find: Callable[[Any], Any], inputs: Sequence[Any]):
        self._find, self._inputs = find, inputs

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return share(self._inputs, lambda value: (value,), rank, world)

    def step(self, objective: Any) -> Callable[[tuple[Any]], Any]:
        return lambda batch: self._find(*batch)

    def compute(self, measured: Sequence[Sequence[Any]]) -> dict[str, float]:
        return {}
