"""Texts and their summaries."""

from typing import NamedTuple


class Summarised(NamedTuple):
    text: str
    summary: str
