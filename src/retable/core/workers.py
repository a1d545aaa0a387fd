"""Work on a large text in parts, each in a process somewhere, that come to the same bytes as one process leaves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

SMALL = 8 << 20  # bytes of text that one process is through with before others have started


class MapWorkers(Protocol):
    """Calls a function, by its whole name, with the strings of each part, and returns when all have."""

    @property
    def n(self) -> int:
        """How many parts it calls at a time."""

    @property
    def folder(self) -> Path:
        """What all parts see, for what they leave to be joined."""

    def __call__(self, function: str, parts: Sequence[Sequence[str]]) -> None: ...
