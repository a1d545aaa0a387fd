"""The data type of a text with its summary."""

from typing import NamedTuple


class Summarised(NamedTuple):
    """A text and its summary."""

    text: str
    summary: str
