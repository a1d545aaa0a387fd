"""Texts and their summaries."""

from typing import NamedTuple


class Summarised(NamedTuple):
    """A text and its summary."""

    text: str
    summary: str
