"""Figures of a study: learning curves, perplexities with intervals, word vectors in the plane. Equal data give equal
bytes."""

import html
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import cycle, product
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, ScalarFormatter

from retable.reporting.results import ORACLE, Result

# after Okabe and Ito (2008), told apart by the colour-blind; here in tones for white and for black paper
COLOURS = ("#0b7fbf", "#d55e00", "#0a9a74", "#c2659a", "#b58900", "#7a6ff0", "#7f7f7f")
LINES = ("-", "--", ":")  # once the colours are used up
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


# by objective: the metric that bounds its loss on the embedded language, and the batches that it is the bound of
BOUND_OF: dict[str, tuple[str, dict[str, Any]]] = {
    "masked_lm": ("masked/corrupted", {"rate": 0.15, "masking": "token"}),
    "text_to_text": (
        "spans/loss",
        {"corruption": {"_target_": "retable.data.corruption.RandomSpans", "density": 0.15, "mean": 3.0}},
    ),
    "prefix_lm": ("prefix/loss", {"corruption": {"_target_": "retable.data.corruption.Prefix"}}),
}


def learning_curves(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a stage, corpus, task and kind of loss, of loss against step: the mean over seeds, in the band of all.

    Takes the runs that left a curve; `validation/loss` where any run of the figure has it, else `train/loss`.
    Steps that not every seed has reached are left out. All language models' losses are of one kind, nats of the next
    token; others are of their objectives'. What the grammar allows is a line across those on the same tokens under the
    corruption that it is the bound of.
    """
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    bounds: dict[tuple[str, str], float] = {}
    for result in results:
        if result.curve is not None:
            config = yaml.safe_load(result.config)
            target = (config.get("objective") or {}).get("_target_", "")  # fine-tuning keeps a recipe's bare settings
            kind = target.split(".")[-2] if target and "validation_scorer" not in config else ""
            tokens = config["tokens"] if kind in BOUND_OF else ""
            where = (result.run["stage"], result.run["corpus"], result.run.get("task"), kind)
            groups[" · ".join(filter(None, dict.fromkeys(where))), tokens, kind].append(result)
        for kind, (metric, _) in BOUND_OF.items():
            if metric in result.metrics:
                bounds[yaml.safe_load(result.config).get("tokens"), kind] = result.metrics[metric]
    names = Counter(name for name, _, _ in groups)
    figures = {}
    for (name, tokens, kind), group in sorted(groups.items()):
        title = name if names[name] == 1 else f"{name} · {tokens}"
        bounded = kind in BOUND_OF and all(_has_batches(result, BOUND_OF[kind][1]) for result in group)
        if figure := _curves(title, group, bounds.get((tokens, kind)) if bounded else None):
            figures[title] = figure
    return figures


def _has_batches(result: Result, settings: Mapping[str, Any]) -> bool:
    batches = yaml.safe_load(result.config).get("batches") or {}
    return all(batches.get(name) == value for name, value in settings.items())


def _curves(name: str, results: list[Result], bound: float | None) -> Figure | None:
    curves = pd.concat(
        result.curve.assign(system=result.run["system"], run=result.name)
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
        if bound is not None:
            axes.axhline(bound, color=INK, lw=1.2, ls="--")
            ends.append((max(end[0] for end in ends), bound, "bound (grammar)", INK))
        axes.set_title(name)
        axes.set_xlabel("step")
        axes.set_ylabel(f"{metric.replace('/', ' ')} (nats)")
        axes.margins(x=0)
        axes.grid(axis="y", lw=0.5, alpha=0.25, color=INK)
        label_ends(figure, axes, ends)
        return figure


def label_ends(figure: Figure, axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Each line's name right of its end, pushed apart upwards where names would overlap."""
    figure.draw_without_rendering()
    line = matplotlib.rcParams["font.size"] * 1.25 * figure.dpi / 72
    below = float("-inf")
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        pixel = axes.transData.transform((x, y))[1]
        below = max(pixel, below + line)
        offset = (8, (below - pixel) * 72 / figure.dpi)
        axes.annotate(name, (x, y), offset, textcoords="offset points", va="center", color=colour)


def size_curves(frame: pd.DataFrame, words: Mapping[str, float]) -> dict[str, Figure]:
    """Figures of analogy accuracy against training words, of all questions and of the regular ones: a line a system,
    the mean over seeds, in a band of their standard deviation.

    `words` are those of each corpus. Corpora that differ in a size at the end of their names alone (grammar,
    grammar_300k, grammar_3m) are one language; two of them at least make a figure.
    """
    frame = frame[(frame["task"] == "analogies") & (frame["metric"] == "accuracy") & frame["corpus"].isin(list(words))]
    frame = frame.assign(language=frame["corpus"].str.replace(r"_\d+[km]?$", "", regex=True))
    frame = frame.assign(words=frame["corpus"].map(words), mean=100 * frame["mean"], std=100 * frame["std"].fillna(0))
    return {
        f"{section}-{language}": _size_curve(f"{language}: {title}", part.sort_values("words"))
        for section, title in (("regular", "regular features"), ("total", "all analogies"))
        for language, part in frame[frame["split"] == section].groupby("language")
        if part["words"].nunique() > 1
    }


def _size_curve(title: str, frame: pd.DataFrame) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axes = figure.subplots()
        ends = []
        for (system, part), (line, colour) in zip(frame.groupby("system"), cycle(product(LINES, COLOURS))):
            low, high = part["mean"] - part["std"], part["mean"] + part["std"]
            axes.fill_between(part["words"], low, high, color=colour, alpha=0.15, lw=0)
            axes.plot(part["words"], part["mean"], color=colour, lw=1.8, ls=line, marker="o", ms=4, clip_on=False)
            ends.append((part["words"].iloc[-1], part["mean"].iloc[-1], str(system), colour))
        sizes = sorted(set(frame["words"]))
        axes.set_xscale("log")
        axes.set_xticks(sizes, [_words(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0, top=100)
        axes.set_title(title)
        axes.set_xlabel("words of training text, log scale")
        axes.set_ylabel("accuracy by 3CosAdd (%)")
        axes.margins(x=0.02)
        axes.grid(axis="y", lw=0.5, alpha=0.25, color=INK)
        label_ends(figure, axes, ends)
        return figure


def _words(count: float) -> str:
    return f"{count / 1e6:.3g} million" if count >= 1e6 else f"{count / 1e3:.3g} thousand"


def planes(results: Iterable[Result]) -> dict[str, Figure]:
    """A figure a corpus: the pairs of a relation in the plane, joined by lines, a panel a system (its first seed)."""
    found: dict[str, dict[str, Result]] = defaultdict(dict)
    for result in sorted(results, key=lambda result: (result.run["seed"] or 0, result.name)):
        if result.plane is not None:
            found[result.run["corpus"]].setdefault(result.run["system"], result)
    return {corpus: _planes(systems) for corpus, systems in sorted(found.items())}


def _planes(systems: Mapping[str, Result]) -> Figure:
    across = min(2, len(systems))
    down = -(-len(systems) // across)
    with matplotlib.rc_context(STYLE | {"font.size": 8 if across > 1 else 10, "axes.titlesize": 11}):
        figure = Figure(figsize=(7.6, (3.6 if across > 1 else 4.8) * down), layout="constrained")
        grid = figure.subplots(down, across, squeeze=False).ravel()
        for axes in grid[len(systems) :]:
            axes.set_axis_off()
        for axes, (system, result) in zip(grid, sorted(systems.items()), strict=False):
            assert result.plane is not None
            for _, pair in result.plane.groupby("pair"):
                axes.plot(pair["x"], pair["y"], color=INK, lw=0.7, ls=":", alpha=0.7)
            for side, words in result.plane.groupby("side"):
                axes.plot(words["x"], words["y"], "o", color=COLOURS[side], ms=3)
            axes.set_title(system)
            axes.margins(x=0.35)  # room for the names
            axes.set_xticks([])
            axes.set_yticks([])
        figure.draw_without_rendering()
        for axes, (_, result) in zip(grid, sorted(systems.items()), strict=False):
            _label_points(figure, axes, result.plane)
        return figure


def _label_points(figure: Figure, axes: Axes, points: pd.DataFrame) -> None:
    """Each word beside its point, right of those of side 0 and left of the others, moved upwards off another word."""
    size = matplotlib.rcParams["font.size"] * figure.dpi / 72
    for side, words in points.groupby("side"):
        align, step = ("left", 4) if side == 0 else ("right", -4)
        taken: list[tuple[float, float, float]] = []  # left end, right end and height of the words that stand
        for row in words.sort_values("y").itertuples():
            x, y = axes.transData.transform((row.x, row.y))
            width = 0.65 * size * len(row.word)
            left, right = (x, x + width) if side == 0 else (x - width, x)
            height = y
            for other_left, other_right, other in taken:
                if left < other_right and other_left < right:
                    height = max(height, other + size)
            taken.append((left, right, height))
            axes.annotate(
                row.word, (row.x, row.y), (step, (height - y) * 72 / figure.dpi), textcoords="offset points",
                ha=align, va="center", color=COLOURS[side], parse_math=False,
            )  # fmt: skip


def perplexities(frame: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus of test perplexity per word: a dot a system that ran, its 95 % interval, the oracle a line."""
    frame = frame[(frame["task"] == "") & (frame["split"] == "test") & (frame["metric"] == "perplexity_word")]
    frame = frame[frame["n"] > 0]
    frame = frame[frame["corpus"].isin(frame.loc[frame["system"] != ORACLE, "corpus"])]
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
        # a published number just right of ours would stand on its text
        covered = (systems["published"] > highs) & (systems["published"] < 1.2 * highs)
        ends = highs.mask(covered, systems["published"])
        for place, mean, end in zip(places, systems["mean"], ends, strict=True):
            axes.annotate(f"{mean:.1f}", (max(mean, end), place), (7, 0), textcoords="offset points", va="center")
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
