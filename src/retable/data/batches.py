"""What batches of any kind are to those who train and measure by them."""

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
