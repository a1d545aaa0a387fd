"""Figures of word vectors: analogy accuracy by corpus size, and pairs of words in a plane."""

from collections.abc import Iterable, Mapping

import altair as alt
import pandas as pd

from retable.reporting.figures import COLOURS, FAINT, LINE, SIZE, WIDTH, Figure, text_width, titled
from retable.reporting.lines import Look, Scale, line_panel, significant
from retable.reporting.names import display_name
from retable.reporting.results import Result, by_corpus

ACROSS, DOWN = WIDTH - 20, 340  # width and height of a plane, in pixels
PLANE = "first two principal components; dotted: the pairs"


def size_curves(frame: pd.DataFrame, words: Mapping[str, float]) -> dict[str, Figure]:
    """Return figures of analogy accuracy by number of training words, for all questions and for regular forms.

    Each figure has a line per system: the mean over seeds, in a band of one standard deviation. Corpora whose names
    differ only in a size at the end (grammar, grammar_300k, grammar_3m) belong to one language. A language has figures
    if at least two of its corpora were measured.

    frame: averaged results, from `results.aggregate`.
    words: number of training words by corpus.
    """
    frame = frame[(frame["task"] == "analogies") & (frame["metric"] == "accuracy") & frame["corpus"].isin(list(words))]
    frame = frame.assign(language=frame["corpus"].str.replace(r"_\d+[km]?$", "", regex=True))
    mean, std = 100 * frame["mean"], 100 * frame["std"].fillna(0)
    frame = frame.assign(x=frame["corpus"].map(words), y=mean, low=mean - std, high=mean + std, variant="")
    return {
        f"{section}-{language}": _size_curve(f"{title} of {language}", part.sort_values("x"))
        for section, title in (("regular", "regular word forms"), ("total", "all analogies"))
        for language, part in frame[frame["split"] == section].groupby("language")
        if part["x"].nunique() > 1
    }


def _size_curve(title: str, frame: pd.DataFrame) -> Figure:
    sizes = sorted(set(frame["x"]))
    x = Scale("words of training text, log scale", sizes[0] / 1.1, sizes[-1] * 1.1, True, sizes, ".3~s")
    y = Scale("accuracy by 3CosAdd, %", 0, 100)
    lines = frame[["system", "variant", "x", "y", "low", "high"]]
    subtitle = "band: standard deviation over seeds"
    return titled(line_panel(lines, x, y, {"": Look(is_marked=True)}), "Analogies by size of corpus", title, subtitle)


def planes(results: Iterable[Result]) -> dict[str, Figure]:
    """Return a figure per corpus: pairs of words in a plane, each pair joined by a line.

    Each system has a panel, which shows the run of its first seed.
    """
    figures = {}
    for corpus, systems in by_corpus(results, "plane"):
        planes_of = (_plane(system, runs[0].tables["plane"]) for system, runs in systems.items())
        figures[corpus] = titled(
            alt.concat(*planes_of, columns=1), "Pairs of words in the plane", f"corpus {corpus}", PLANE
        )
    return figures


def _plane(system: str, points: pd.DataFrame) -> Figure:
    x, y = (Scale.over("", points[axis], margin=0.1) for axis in ("x", "y"))
    parts = [words.assign(place=_heights(words, x, y)) for _, words in points.groupby("side")]
    axis = alt.Axis(title=None, labels=False, ticks=False, grid=False)
    base = alt.Chart(significant(pd.concat(parts))).encode(x.x().axis(axis), y.y().axis(axis))
    colour = alt.Color("side:N", legend=None).scale(domain=[0, 1], range=COLOURS[:2])
    layers = [
        base.mark_line(color=FAINT, strokeWidth=0.7, strokeDash=[2, 3]).encode(detail="pair:N"),
        base.mark_circle(size=20, opacity=1).encode(color=colour, tooltip=["word:N", "x:Q", "y:Q"]),
    ]
    for side, step in enumerate((5, -5)):
        names = base.transform_filter(alt.datum.side == side)
        names = names.mark_text(align="right" if side else "left", dx=step, fontSize=SIZE)
        layers.append(names.encode(y.y("place").axis(axis), color=colour, text="word:N"))
    return alt.layer(*layers).properties(width=ACROSS, height=DOWN, title=display_name(system))


def _heights(words: pd.DataFrame, x: Scale, y: Scale) -> pd.Series:
    """Return the heights of the labels of words on one side of the pairs, moved up where labels would overlap."""
    places = pd.Series(y.pixels(words["y"], DOWN), words.index).sort_values(kind="stable")
    lefts = pd.Series(x.pixels(words["x"], ACROSS), words.index)
    widths = words["word"].map(text_width)
    for i, word in enumerate(places.index):
        for other in places.index[:i]:
            # labels of one side of the pairs are all left, or all right, of their points
            if abs(lefts[word] - lefts[other]) < max(widths[word], widths[other]):
                places[word] = max(places[word], places[other] + LINE)
    return pd.Series(y.values(places, DOWN), places.index)
