"""Where the heads of Transformers look: maps of sentences, and the table of heads. Equal data give equal bytes."""

from collections.abc import Iterable

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from retable.reporting.alignments import FILL
from retable.reporting.fields import filled_table
from retable.reporting.figures import COLOURS, INK, STYLE
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

CELL, GAP, LETTER = 0.16, 0.16, 0.07  # inches: of a square, between panels, and of a letter, about
SQUARE = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
FAINT = 0.02  # a lesser weight is not drawn: nobody would see it
ERRORS = 2  # standard errors, by which a head's share is told from what is no head's doing
SHARES = {  # of `heads.csv`: heading and title
    "itself": ("To the word", "itself"),
    "previous": ("To the word", "before"),
    "next": ("To the word", "behind"),
    "marks": ("To", "marks"),
    "subject": ("Verb to its subject", "attention"),
    "subject_first": ("Verb to its subject", "most"),
    "far_subject": ("Verb to its subject further off", "attention"),
    "far_subject_first": ("Verb to its subject further off", "most"),
}
FLOORS = {"equal": "equal attention", "offset": "the usual distance"}  # what no head is needed for, as metrics have it


def attention_figures(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a sentence that a cell left the attention of."""
    figures = {}
    for result in results:
        if result.attention is not None:
            name = "{corpus}-{system}-{seed}".format_map(result.run)
            for sentence, maps in result.attention.groupby("sentence"):
                figures[f"{name}-{sentence}"] = attention_figure(maps)
    return dict(sorted(figures.items()))


def attention_figure(maps: pd.DataFrame) -> Figure:
    """Heat maps, a row of them a layer, a column a head: a word looks from its row, the fuller the square the more, at
    the words above. A frame is round the squares from verbs to their subjects.

    `maps` has a row a layer, head and square: `target_place`, `target`, `source_place`, `source`, `weight` from 0 to 1,
    and `subject`, 1 or 0.
    """
    words = maps.drop_duplicates("target_place").sort_values("target_place")["target"]
    n, (n_layers, n_heads) = len(words), maps[["layer", "head"]].max()
    side, names = CELL * n, LETTER * max(map(len, words)) + 0.1
    width, height = names + n_heads * (side + GAP), names + n_layers * (side + 2 * GAP) + GAP
    with matplotlib.rc_context(STYLE | {"font.size": 8}):
        figure = Figure(figsize=(width, height))
        for (layer, head), squares in maps.groupby(["layer", "head"]):
            # placed by hand: matplotlib's layouts take seconds for as many panels
            left, above = names + (head - 1) * (side + GAP), names + (layer - 1) * (side + 2 * GAP)
            axes = figure.add_axes((left / width, 1 - (above + side) / height, side / width, side / height))
            seen = squares[squares["weight"] >= FAINT]
            corners = seen[["source_place", "target_place"]].to_numpy()[:, None] + SQUARE  # (squares, 4, 2)
            # paths and no image: squares that any size of paper shows sharp
            axes.add_collection(PolyCollection(corners, array=seen["weight"], cmap=FILL, clim=(0, 1), linewidth=0))
            for square in squares[squares["subject"] == 1].itertuples():
                corner = square.source_place, square.target_place
                axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[1], lw=1))
            axes.set(xlim=(0, n), ylim=(n, 0))
            axes.xaxis.tick_top()
            places = [place + 0.5 for place in range(n)]
            axes.set_xticks(places, words if layer == 1 else [""] * n, rotation=60, ha="left", rotation_mode="anchor")
            axes.set_yticks(places, words if head == 1 else [""] * n)
            for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                label.set_parse_math(False)
            axes.set_xlabel(f"layer {layer}, head {head}", labelpad=2)
            axes.tick_params(length=0, pad=2)
            axes.spines[:].set(visible=True, edgecolor=f"{INK}60", linewidth=0.4)
        told = "from the word at the left to the words above; framed: from a verb to its subject"
        figure.text(names / width, GAP / 2 / height, told)
        return figure


def heads_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """The table, where a cell measured its heads, with its rows: a row a system, seed, layer and head, and behind those
    of a system what no head is needed for."""
    panels: dict[str, list[Row]] = {}
    frames = []
    measured = [result for result in results if "heads" in result.diagnostics]
    for result in sorted(measured, key=lambda result: (result.run["corpus"], result.run["system"], result.run["seed"])):
        own, rows = result.diagnostics["heads"], panels.setdefault(result.run["corpus"], [])
        name = [Value(result.run["system"]), Value(str(result.run["seed"]))]
        floors = {kind: {share: result.metrics.get(f"attention/{kind}/{share}") for share in SHARES} for kind in FLOORS}
        is_first = True
        for (layer, head), part in own.groupby(["layer", "head"]):
            cells = part.set_index("share")
            values = [_share(cells.loc[share], share, floors, result.name) for share in SHARES]
            rows.append(Row([*name, Value(str(layer)), Value(str(head)), *values], apart=is_first and bool(rows)))
            is_first = False
        for kind, title in FLOORS.items():
            texts = ["" if share is None else f"{100 * share:.1f}" for share in floors[kind].values()]
            rows.append(Row([*name, Value(title), Value(""), *map(Value, texts)]))
        run = {name: result.run[name] for name in ("corpus", "system", "seed")}
        counts = {name: int(result.metrics[f"attention/{name}"]) for name in ("words", "verbs", "far_verbs")}
        frames.append(own.assign(**run, **counts, runs=result.name))
    if not frames:
        return []
    columns = [Column("System", numeric=False), Column("Seed"), Column("Layer", numeric=False), Column("Head")]
    columns += [Column(title, group) for group, title in SHARES.values()]
    notes = [
        "In percent of the attention from a word in new sentences of the language, nothing of them hidden: what goes "
        "to itself, its neighbours and the marks round the sentence; from a verb to the head of its subject, and of "
        "how many verbs that is the other word most looked at (Clark et al. 2019). Further off: the subject's head is "
        "not the word before the verb.",
        "Equal attention is spread over all that may be seen; the usual distance is how often the subject's head "
        "stands where it does most often.",
        f"± is the standard error over sentences. Bold: above that by {ERRORS} of them; not corrected for the number "
        "of comparisons.",
    ]
    table = filled_table("attention-heads", "Where heads look", columns, panels, notes)
    return [(table, pd.concat(frames))]


def _share(cell: pd.Series, share: str, floors: dict[str, dict[str, float | None]], run: str) -> Value:
    if "subject" not in share:
        return Value(f"{100 * cell['mean']:.1f}", runs=(run,))
    (floor,) = (found[share] for found in floors.values() if found[share] is not None)
    is_more = cell["mean"] - ERRORS * cell["error"] > floor
    return Value(f"{100 * cell['mean']:.1f}", f"{100 * cell['error']:.1f}", bold=bool(is_more), runs=(run,))
