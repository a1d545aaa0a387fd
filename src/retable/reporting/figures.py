"""Figures of a study: learning curves, and perplexities with intervals. Equal data give equal bytes."""

import html
import io
import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, ScalarFormatter

from retable.reporting.results import ORACLE, Result

# after Okabe and Ito (2008), told apart by the colour-blind; here in tones for white and for black paper
COLOURS = ("#0b7fbf", "#d55e00", "#0a9a74", "#c2659a", "#b58900", "#7a6ff0", "#7f7f7f")
INK = "#4d4d4f"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "retable",
    "svg.fonttype": "none",  # text stays text: selectable, and in the page's font
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.linewidth": 0.8,
    **{key: INK for key in ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")},
}


def learning_curves(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a stage, corpus and task, of loss against step: the mean over seeds, in the band of all seeds.

    Takes the runs that left a curve; `validation/loss` where any run of the figure has it, else `train/loss`.
    Steps that not every seed has reached are left out.
    """
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        if result.curve is not None:
            where = [result.run["stage"], result.run["corpus"], result.run.get("task")]
            groups[" · ".join(filter(None, where))].append(result)
    return {name: figure for name, group in sorted(groups.items()) if (figure := _curves(name, group))}


def _curves(name: str, results: list[Result]) -> Figure | None:
    curves = pd.concat(
        result.curve.assign(system=result.run["system"], run=result.id)
        for result in results
        if result.curve is not None
    )
    for metric in ("validation/loss", "train/loss"):
        chosen = curves[curves["metric"] == metric]
        if len(chosen):
            break
    else:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axes = figure.subplots()
        ends = []
        for (system, part), colour in zip(chosen.groupby("system"), cycle(COLOURS)):
            seeds = part.pivot_table(index="step", columns="run", values="value").dropna()
            if seeds.empty:
                continue
            axes.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=colour, alpha=0.2, lw=0)
            axes.plot(seeds.index, mean := seeds.mean(axis=1), color=colour, lw=1.8, marker="o"[: len(seeds) == 1])
            ends.append((seeds.index[-1], mean.iloc[-1], str(system), colour))
        axes.set_title(name)
        axes.set_xlabel("step")
        axes.set_ylabel(f"{metric.replace('/', ' ')} (nats)")
        axes.margins(x=0)
        axes.grid(axis="y", lw=0.5, alpha=0.25, color=INK)
        _label_ends(figure, axes, ends)
        return figure


def _label_ends(figure: Figure, axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Each line's name right of its end, pushed apart upwards where names would overlap."""
    figure.draw_without_rendering()
    line = matplotlib.rcParams["font.size"] * 1.25 * figure.dpi / 72
    below = float("-inf")
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        pixel = axes.transData.transform((x, y))[1]
        below = max(pixel, below + line)
        offset = (8, (below - pixel) * 72 / figure.dpi)
        axes.annotate(name, (x, y), offset, textcoords="offset points", va="center", color=colour)


def perplexities(frame: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus of test perplexity per word: a dot a system, its 95 % interval, the oracle a line."""
    frame = frame[(frame["task"] == "") & (frame["split"] == "test") & (frame["metric"] == "perplexity_word")]
    return {str(corpus): _dots(str(corpus), part) for corpus, part in frame.groupby("corpus")}


def _dots(corpus: str, frame: pd.DataFrame) -> Figure:
    systems = frame[frame["system"] != ORACLE].sort_values("mean", ascending=False)
    oracle = frame.loc[frame["system"] == ORACLE, "mean"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 1.5 + 0.34 * len(systems)), layout="constrained")
        axes = figure.subplots()
        places = range(len(systems), 0, -1)
        axes.hlines(places, systems["ci_low"], systems["ci_high"], color=COLOURS[0], lw=2, alpha=0.45)
        axes.plot(systems["mean"], places, "o", color=COLOURS[0], ms=6)
        axes.plot(systems["published"], places, "D", mfc="none", color=INK, ms=8)
        highs = systems["ci_high"].fillna(systems["mean"])
        for place, mean, high in zip(places, systems["mean"], highs, strict=True):
            axes.annotate(f"{mean:.1f}", (max(mean, high), place), (7, 0), textcoords="offset points", va="center")
        for value in oracle:
            axes.axvline(value, color=COLOURS[1], lw=1.4, ls="--")
            above = axes.get_xaxis_transform()
            axes.annotate(
                f"oracle {value:.1f}", (value, 1), (0, 3), xycoords=above, textcoords="offset points",
                color=COLOURS[1], ha="center", va="bottom",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
        shown = frame[["mean", "ci_low", "ci_high", "published"]]
        low, high = shown.min(axis=None) / 1.15, shown.max(axis=None) * 1.2  # room for the last number
        axes.set_xticks(_round_ticks(low, high))
        axes.set_xlim(low, high)
        axes.set_yticks(places, systems["system"])
        axes.set_ylim(0.4, len(systems) + 0.6)
        axes.tick_params(left=False)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", lw=0.5, alpha=0.25, color=INK)
        diamond = ", ◇ published" if systems["published"].notna().any() else ""
        axes.set_xlabel(f"test perplexity per word on {corpus}, log scale, 95 % intervals{diamond}")
        return figure


def _round_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a log scale: the densest of some sets that has at most seven between low and high."""
    for digits in (
        range(10, 100, 2),
        range(10, 100, 5),
        range(10, 100, 10),
        (10, 15, 20, 30, 50, 70),
        (10, 20, 50),
    ):
        ticks = [digit * 10.0**power for power in range(-2, 8) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 7:
            break
    return ticks


def write_figure(figure: Figure, path: Path) -> None:
    """Write an SVG or PNG, as the suffix says, on white; equal figures give equal bytes."""
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, dpi=200, facecolor="white", metadata=_no_metadata(path.suffix[1:]))


def inline_svg(figure: Figure, title: str) -> str:
    """The figure as an `svg` element for a page: transparent, its ink the page's text colour."""
    buffer = io.StringIO()
    # the salt keeps the ids of one figure's markers from those of another on the page
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=_no_metadata("svg"))
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # matplotlib numbers its groups anew in each figure, and nothing refers to these ids
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)


def _no_metadata(suffix: str) -> dict[str, None]:
    names = {"svg": ("Date", "Creator", "Format", "Type"), "png": ("Software",)}
    return dict.fromkeys(names[suffix])
