"""Parallel work on a large text: each part in a process, with the same bytes as one process writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SMALL = 8 << 20  # bytes; one process reads a text of this size before others have started


class MapWorkers(Protocol):
    """Calls a function, given by its full name, with the strings of each part; returns when all calls have."""

    @property
    def n(self) -> int:
        """The number of parts processed at a time."""

    @property
    def folder(self) -> Path:
        """The folder that all parts can access, for output that is joined afterwards."""

    def __call__(self, function: str, parts: Sequence[Sequence[str]]) -> None: ...
