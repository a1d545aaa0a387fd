"""The interface for processing a large text in parts, one process per part; the result equals that of one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SMALL = 8 << 20  # bytes; a smaller text is processed by one process before other processes would have started


class MapWorkers(Protocol):
    """A callable that runs a function, given by its full name, on every part, and returns when all have finished.

    The arguments of the function are the strings of a part.
    """

    @property
    def n(self) -> int:
        """The number of parts that are processed at the same time."""

    @property
    def folder(self) -> Path:
        """The folder for partial results, which all processes can access."""

    def __call__(self, function: str, parts: Sequence[Sequence[str]]) -> None: ...
