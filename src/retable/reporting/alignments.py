"""Figures of alignments: the source words that a decoder attends to when it writes each word.

Equal data give byte-identical figures.
"""

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np
import pandas as pd

from retable.reporting.figures import Figure
from retable.reporting.heat_map import heat_map
from retable.reporting.names import display_name
from retable.reporting.results import Result, by_corpus

SENTENCES = 10  # number of sentences per system


def alignment_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """Return a figure for each corpus and each system with alignments in the results.

    A figure shows SENTENCES sentences that the run of the first seed translated.
    """
    subtitle = "rows: written words; columns: words of the source; darker: more attention"
    figures = {}
    for corpus, systems in by_corpus(results, "alignments"):
        for system, runs in systems.items():
            squares = runs[0].tables["alignments"]
            # renumber sentences from 1, without gaps
            squares = squares.assign(sentence=squares.groupby("sentence").ngroup() + 1)
            shown = squares[squares["sentence"] <= SENTENCES]
            figures[f"{corpus}-{system}"] = heat_map(
                shown, ["sentence"], f"Attention of {display_name(system)}", subtitle
            )
    return figures


def alignment_map(source: Sequence[str], written: Sequence[str], weights: np.ndarray) -> Figure:
    """Return the figure of one sentence; `weights` has shape (written words, source words)."""
    pairs = product(enumerate(written), enumerate(source))
    rows = [(1, u, target, s, word, float(weights[u, s])) for (u, target), (s, word) in pairs]
    columns = ["sentence", "target_place", "target", "source_place", "source", "weight"]
    frame = pd.DataFrame(rows, columns=columns)
    return heat_map(frame, ["sentence"], "Attention to the source", "rows: written words; darker: more attention")
