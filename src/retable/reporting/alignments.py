"""Figures of alignments: what a decoder looked at with each word that it wrote. Equal data give equal bytes."""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from retable.reporting.figures import Figure
from retable.reporting.heat_map import heat_map
from retable.reporting.results import Result, by_corpus

SENTENCES = 10  # so many of each system


def alignment_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a corpus and system that left alignments, in the first of its seeds, of one of its first sentences."""
    told = "from the written word at the left to the words of the source above"
    figures = {}
    for corpus, systems in by_corpus(results, "alignments"):
        for system, runs in systems.items():
            squares = runs[0].tables["alignments"]
            squares = squares.assign(sentence=squares.groupby("sentence").ngroup() + 1)  # of the existing sentences
            shown = squares[squares["sentence"] <= SENTENCES]
            figures[f"{corpus}-{system}"] = heat_map(shown, ["sentence"], told)
    return figures


def alignment_map(source: Sequence[str], written: Sequence[str], weights: np.ndarray) -> Figure:
    """The figure of one sentence: its words, those that were written, and the weights (written, source)."""
    pairs = product(enumerate(written), enumerate(source))
    rows = [(1, u, target, s, word, float(weights[u, s])) for (u, target), (s, word) in pairs]
    columns = ["sentence", "target_place", "target", "source_place", "source", "weight"]
    frame = pd.DataFrame(rows, columns=columns)
    return heat_map(frame, ["sentence"], "from the written word at the left to the source")
