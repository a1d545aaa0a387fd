"""Figures of the diagnostic benchmarks, and of the layers' costs. Equal data give equal bytes."""

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, product
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from retable.metrics.regression import fit_power
from retable.reporting.diagnostics import PHENOMENA, Systems, by_corpus, phenomena_frame, sampling_frame
from retable.reporting.figures import COLOURS, INK, LINES, STYLE
from retable.reporting.results import Result

FEW = 100  # tokens of a bin whose mean says too little for a figure


def diagnostic_figures(results: Iterable[Result]) -> list[tuple[str, str, dict[str, Figure]]]:
    """Of each kind its title, the beginning of its files' names, and its figures by corpus, or by device."""
    results = list(results)
    kinds: list[tuple[str, str, Callable[[str, Systems], Figure]]] = [
        ("Excess over the entropy", "phenomena", _phenomena_figure),
        ("Loss by position", "positions", _positions_figure),
        ("Gradients", "gradients", _gradients_figure),
        ("Quality and diversity of samples", "sampling", _sampling_figure),
    ]
    figures = [
        (title, kind, {corpus: draw(corpus, systems) for corpus, systems in by_corpus(results, kind)})
        for title, kind, draw in kinds
    ]
    costs = {
        result.run["system"]: _scaling_figure(result.diagnostics["scaling"])
        for result in results
        if "scaling" in result.diagnostics
    }
    return [*figures, ("Time and memory of layers", "scaling", costs)]


def _phenomena_figure(corpus: str, systems: Systems) -> Figure:
    """A group of bars a phenomenon, a bar a system with its 95 % interval; the systems in the order of their totals."""
    frame = phenomena_frame(systems)
    order = frame[frame["phenomenon"] == "total"].sort_values("mean", ascending=False)["system"].tolist()
    width = 0.8 / len(order)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained")
        axes = figure.subplots()
        for i, (system, (_, colour)) in enumerate(zip(order, cycle(product(LINES, COLOURS)), strict=False)):
            part = frame[frame["system"] == system].set_index("phenomenon").loc[list(PHENOMENA)]
            places = np.arange(len(PHENOMENA)) + (i - (len(order) - 1) / 2) * width
            reach = [part["mean"] - part["ci_low"], part["ci_high"] - part["mean"]]
            hatch = "//" * (i // len(COLOURS))  # once the colours are used up
            axes.bar(places, part["mean"], 0.9 * width, color=colour, label=system, hatch=hatch, yerr=reach,
                     error_kw={"ecolor": INK, "elinewidth": 0.8})  # fmt: skip
        axes.axhline(0, color=INK, lw=0.8)
        axes.set_xticks(range(len(PHENOMENA)), PHENOMENA)
        axes.tick_params(bottom=False)
        axes.set_ylabel("nats a token above the entropy")
        axes.set_title(corpus)
        _finish(figure, [axes])
        return figure


def _positions_figure(corpus: str, systems: Systems) -> Figure:
    """A panel for sentences, units of text and windows, as there are; a line a system, the mean over seeds."""
    parts = [run.diagnostics["positions"].assign(system=name) for name, runs in systems.items() for run in runs]
    frame = pd.concat(parts)
    frame = frame[frame["tokens"] >= FEW]
    titles = {"sentence": "in the sentence", "unit": "in the document or line", "window": "in fresh context"}
    shown = [where for where in titles if where in set(frame["where"])]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 1.0 + 2.6 * len(shown)), layout="constrained")
        panels = figure.subplots(len(shown), 1, squeeze=False).ravel()
        for axes, where in zip(panels, shown, strict=True):
            bins = frame[frame["where"] == where].groupby(["system", "first", "last"], as_index=False)["nats"].mean()
            for system, style in _styles(systems):
                part = bins[bins["system"] == system]
                axes.plot(np.sqrt(part["first"] * part["last"]), part["nats"], marker="o", ms=3, label=system, **style)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.set_xlabel(f"position {titles[where]}, log scale")
            axes.set_ylabel("nats a token")
        panels[0].set_title(corpus)
        _finish(figure, panels)
        return figure


def _gradients_figure(corpus: str, systems: Systems) -> Figure:
    """Norm against distance, a line a system; below it the share of batches whose norm is above a value, before
    clipping and, dotted, after it."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 6.4), layout="constrained")
        upper, lower = panels = figure.subplots(2, 1)
        for system, style in _styles(systems):
            runs = systems[system]
            by_distance = pd.concat(run.diagnostics["gradients"] for run in runs).groupby("distance")["relative"].mean()
            seen = by_distance[by_distance > 0]
            upper.plot(seen.index, seen, label=system, **style)
            norms = pd.concat(run.diagnostics["gradient_norms"] for run in runs)
            above = 1 - np.arange(len(norms)) / len(norms)
            lower.step(np.sort(norms["norm"]), above, where="pre", label=system, **style)
            lower.step(np.sort(norms["clipped"]), above, where="pre", **style | {"ls": ":", "lw": 1.0})
        upper.set_yscale("log")
        upper.set_xlabel("tokens between the loss and the embedding")
        upper.set_ylabel("gradient's norm, relative")
        lower.set_xscale("log")
        lower.xaxis.set_major_formatter("{x:g}")
        lower.xaxis.set_minor_formatter(NullFormatter())
        lower.set_xlabel("norm of a batch's gradient, log scale; dotted: after clipping")
        lower.set_ylabel("share of batches above")
        upper.set_title(corpus)
        _finish(figure, panels)
        return figure


def _sampling_figure(corpus: str, systems: Systems) -> Figure:
    """Grammaticality and the grammar's nats against self-BLEU: a line a system over temperatures, a dotted one over
    nuclei, and a star for the held-out text."""
    frame = sampling_frame(systems)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 6.4), layout="constrained")
        panels = figure.subplots(2, 1)
        for axes, (score, label, scale) in zip(
            panels, (("grammatical", "grammatical sentences (%)", 100), ("nats", "their nats a token", 1)), strict=True
        ):
            for system, style in _styles(systems):
                for method, more in (("temperature", {"marker": "o"}), ("top_p", {"marker": "s", "ls": ":"})):
                    part = frame[(frame["system"] == system) & (frame["method"] == method)]
                    name = system if method == "temperature" else None
                    axes.plot(part["self_bleu"], scale * part[score], ms=4, label=name, **style | more)
                    for _, end in part.iloc[[0, -1]].iterrows() if len(part) else ():
                        axes.annotate(f"{end['value']}", (end["self_bleu"], scale * end[score]), (4, 4),
                                      textcoords="offset points", fontsize=8, color=style["color"])  # fmt: skip
            text = frame[frame["method"] == "text"].iloc[0]
            axes.plot([text["self_bleu"]], [scale * text[score]], "*", ms=12, color=INK, label="held-out text")
            axes.set_xlabel("self-BLEU: less varied to the right")
            axes.set_ylabel(label)
        panels[0].set_title(f"{corpus}: circles temperatures, squares nuclei")
        _finish(figure, panels)
        return figure


def _scaling_figure(rows: pd.DataFrame) -> Figure:
    """Time and memory against length and width, on logarithms, with the fitted lines and their slopes."""
    with matplotlib.rc_context(STYLE | {"font.size": 9}):
        figure = Figure(figsize=(7.6, 7.6), layout="constrained")
        grid = figure.subplots(2, 2)
        labels = {"seconds": "seconds", "bytes": "MiB kept for the backward pass"}
        for (quantity, varied), axes in zip(product(labels, ("length", "width")), grid.ravel(), strict=True):
            for (layer, part), colour in zip(rows.groupby("layer", sort=False), COLOURS, strict=False):
                part = part[part["varied"] == varied]
                values = part[quantity] / (2**20 if quantity == "bytes" else 1)
                line = fit_power(part[varied], values)
                fitted = np.exp(line.intercept) * part[varied] ** line.slope
                axes.plot(part[varied], values, "o", ms=4, color=colour)
                axes.plot(part[varied], fitted, lw=1.2, color=colour, label=f"{layer}: {line.slope:.2f}")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.xaxis.set_major_formatter("{x:.0f}")
            axes.set_xlabel({"length": "length n", "width": "width d"}[varied])
            axes.set_ylabel(labels[quantity])
            axes.grid(lw=0.5, alpha=0.25, color=INK)
            axes.legend(frameon=False, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16))
        return figure


def _styles(systems: Systems) -> Iterator[tuple[str, dict[str, Any]]]:
    """The line of each system, the same in all figures of the same systems."""
    for system, (line, colour) in zip(sorted(systems), cycle(product(LINES, COLOURS)), strict=False):
        yield system, {"color": colour, "ls": line, "lw": 1.6}


def _finish(figure: Figure, panels: Iterable[Axes]) -> None:
    """Grids, and one legend beside the panels."""
    for axes in panels:
        axes.grid(axis="y", lw=0.5, alpha=0.25, color=INK)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)
