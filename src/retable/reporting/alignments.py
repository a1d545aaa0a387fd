"""Figures of alignments: what a decoder looked at with each word that it wrote. Equal data give equal bytes."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from retable.reporting.figures import Figure
from retable.reporting.heat_map import heat_map
from retable.reporting.results import Result

SENTENCES = 10  # so many of each system


def alignment_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a corpus and system that left alignments, in the first of its seeds, of one of its first sentences."""
    found: dict[str, pd.DataFrame] = {}
    for result in sorted(results, key=lambda result: (result.run["seed"] or 0, result.name)):
        if result.alignments is not None:
            found.setdefault(f"{result.run['corpus']}-{result.run['system']}", result.alignments)
    told = "from the written word at the left to the words of the source above"
    figures = {}
    for name, squares in sorted(found.items()):
        numbers = squares.groupby("sentence").ngroup() + 1  # of the sentences that there are
        figures[name] = heat_map(squares.assign(sentence=numbers)[numbers <= SENTENCES], ["sentence"], told)
    return figures


def alignment_map(source: Sequence[str], written: Sequence[str], weights: np.ndarray) -> Figure:
    """The figure of one sentence: its words, those that were written, and the weights (written, source)."""
    rows = [
        (1, u, target, s, word, float(weights[u, s]))
        for u, target in enumerate(written)
        for s, word in enumerate(source)
    ]
    columns = ["sentence", "target_place", "target", "source_place", "source", "weight"]
    return heat_map(
        pd.DataFrame(rows, columns=columns), ["sentence"], "from the written word at the left to the source"
    )
