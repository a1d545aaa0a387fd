"""The interface for processing parts of a large text in several processes, with the same result as in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SMALL = 8 << 20  # bytes; a smaller text is processed faster in one process than in several


class MapWorkers(Protocol):
    """A callable that runs a function, given by its full name, on every part, and returns when all parts are processed.

    The arguments of the function are the strings of a part.
    """

    @property
    def n(self) -> int:
        """The number of parts that are processed at the same time."""

    @property
    def folder(self) -> Path:
        """The folder for partial results, which all processes can access."""

    def __call__(self, function: str, parts: Sequence[Sequence[str]]) -> None: ...
