"""Figures of alignments: what a decoder looked at with each word that it wrote. Equal data give equal bytes."""

from collections.abc import Iterable

import matplotlib
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from retable.reporting.figures import COLOURS, INK, STYLE
from retable.reporting.results import Result

FILL = LinearSegmentedColormap.from_list("alignment", [(COLOURS[0], 0.0), (COLOURS[0], 1.0)])
CELL = 0.3  # of an inch
SENTENCES = 3  # so many of each system


def alignment_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """Figures of the first sentences of each corpus and system that left alignments, in the first of its seeds."""
    found: dict[str, pd.DataFrame] = {}
    for result in sorted(results, key=lambda result: (result.run["seed"] or 0, result.name)):
        if result.alignments is not None:
            found.setdefault(f"{result.run['corpus']}-{result.run['system']}", result.alignments)
    return {
        f"{name}-{number}": alignment_figure(alignment)
        for name, alignments in sorted(found.items())
        for number, (_, alignment) in enumerate(list(alignments.groupby("sentence"))[:SENTENCES], start=1)
    }


def alignment_figure(alignment: pd.DataFrame) -> Figure:
    """A heat map: the source's words across, the target's down, the fuller the square the larger the weight.

    `alignment` has a row a square: `target_place`, `target`, `source_place`, `source`, `weight` from 0 to 1.
    """
    weights = alignment.pivot(index="target_place", columns="source_place", values="weight")
    target, source = (
        alignment.drop_duplicates(f"{side}_place").sort_values(f"{side}_place")[side] for side in ("target", "source")
    )
    down, across = weights.shape
    with matplotlib.rc_context(STYLE | {"font.size": 10}):
        figure = Figure(figsize=(1.4 + CELL * across, 1.4 + CELL * down), layout="constrained")
        axes = figure.subplots()
        # a mesh and no image: squares that any size of paper shows sharp
        axes.pcolormesh(weights.to_numpy(), cmap=FILL, vmin=0, vmax=1, edgecolors=f"{INK}30", linewidth=0.4)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.set_xticks([i + 0.5 for i in range(across)], source, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_yticks([i + 0.5 for i in range(down)], target)
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            label.set_parse_math(False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return figure
