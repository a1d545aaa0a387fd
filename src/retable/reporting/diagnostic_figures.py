"""Figures of the diagnostic benchmarks, and of the cost of layers. Equal data give equal bytes."""

from collections.abc import Callable, Iterable

import altair as alt
import numpy as np
import pandas as pd

from retable.metrics.regression import fit_power
from retable.reporting.diagnostics import PHENOMENA, phenomena_frame, sampling_frame
from retable.reporting.figures import COLOURS, INK, WIDTH, Figure, axis_width
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, significant, stacked
from retable.reporting.results import Result, Systems, by_corpus

FEW = 100  # minimum number of tokens of a bin in a figure; means of fewer are too uncertain
BAR = 18  # height of a bar, in pixels
STAR = "M0,-1L0.29,-0.4L0.95,-0.31L0.48,0.15L0.59,0.81L0,0.5L-0.59,0.81L-0.48,0.15L-0.95,-0.31L-0.29,-0.4Z"


def diagnostic_figures(results: Iterable[Result]) -> list[tuple[str, str, dict[str, Figure]]]:
    """Return for each kind of figure its title, the prefix of its files, and its figures by corpus or device."""
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
    measured = [result for result in results if "scaling" in result.tables]
    costs = {result.run["system"]: _scaling_figure(result.tables["scaling"]) for result in measured}
    return [*figures, ("Time and memory of layers", "scaling", costs)]


def _phenomena_figure(corpus: str, systems: Systems) -> Figure:
    """Draw a panel per phenomenon with a bar per system and its 95 % interval, sorted by the systems' totals."""
    frame = phenomena_frame(systems).drop(columns=["runs", "p_best"])
    order = frame[frame["phenomenon"] == "total"].sort_values("mean", ascending=False)["system"].tolist()
    low, high = min(0, frame["ci_low"].min()), frame["ci_high"].max()
    frame = frame.assign(end=frame["ci_high"].clip(lower=0))
    titles = {"mean": "nats above the entropy", "ci_low": "from", "ci_high": "to", "entropy": "entropy", "n": "runs"}
    tooltip = [alt.Tooltip("phenomenon:N"), alt.Tooltip("system:N")]
    tooltip += [alt.Tooltip(f"{field}:Q", title=title, format=".4~f") for field, title in titles.items()]
    rows = alt.Chart().encode(alt.Y("system:N", sort=order), tooltip=tooltip)
    # room for the numbers next to the bars
    scale = alt.Scale(domain=[low, low + (high - low) * 1.45], nice=False)
    mean = alt.X("mean:Q", title=None, scale=scale, axis=alt.Axis(tickCount=3))
    layers = [
        rows.mark_bar(color=COLOURS[0], height=0.6 * BAR).encode(mean),
        rows.mark_rule(color=INK).encode(alt.X("ci_low:Q"), alt.X2("ci_high:Q")),
        rows.mark_text(align="left", dx=4, fontSize=10).encode(alt.X("end:Q"), alt.Text("mean:Q", format=".3f")),
    ]
    width = (WIDTH - axis_width(order)) / len(PHENOMENA) - 12
    panels = alt.layer(*layers, data=significant(frame)).properties(width=width, height=BAR * len(order))
    facet = panels.facet(column=alt.Column("phenomenon:N", sort=list(PHENOMENA)), spacing=12)
    subtitle = "nats per token above the true distribution, 95 % intervals; lower is better"
    return facet.properties(title={"text": corpus, "subtitle": subtitle})


def _positions_figure(corpus: str, systems: Systems) -> Figure:
    """Draw a panel each for sentences, units of text and windows, if measured; a line per system, mean over seeds."""
    parts = [run.tables["positions"].assign(system=name) for name, runs in systems.items() for run in runs]
    frame = pd.concat(parts)
    frame = frame[frame["tokens"] >= FEW]
    bins = frame.groupby(["where", "system", "first", "last"], as_index=False)["nats"].mean()
    bins = bins.assign(x=np.sqrt(bins["first"] * bins["last"]), y=bins["nats"], variant="")
    titles = {"sentence": "in the sentence", "unit": "in the document or line", "window": "in fresh context"}
    panels = []
    for where, title in titles.items():
        if len(lines := bins.loc[bins["where"] == where, ["system", "variant", "x", "y"]]):
            low, high = min(lines["x"]) / 1.1, max(lines["x"]) * 1.1
            powers = [2.0**k for k in range(30) if low <= 2**k <= high]
            x = Scale(f"position {title}, log scale", low, high, True, powers, "d")
            y = Scale.over("nats per token", lines["y"])
            look = {"": Look(is_marked=True)}
            panels.append(line_panel(lines, x, y, look, systems=systems, height=190, name=where))
    return stacked(panels).properties(title=corpus)


def _gradients_figure(corpus: str, systems: Systems) -> Figure:
    """Draw norm by distance, a line per system; below it the share of batches above a norm, dotted after clipping."""
    fading, above = [], []
    for system, runs in systems.items():
        by_distance = pd.concat(run.tables["gradients"] for run in runs).groupby("distance")["relative"].mean()
        seen = by_distance[by_distance > 0]
        fading.append(pd.DataFrame({"x": seen.index, "y": seen.to_numpy(), "system": system, "variant": ""}))
        norms = pd.concat(run.tables["gradient_norms"] for run in runs)
        share = 1 - np.arange(len(norms)) / len(norms)
        for variant in ("norm", "clipped"):
            own = pd.DataFrame({"x": np.sort(norms[variant]), "y": share, "system": system, "variant": variant})
            above.append(own)
    upper, lower = pd.concat(fading), pd.concat(above)
    distance = Scale("tokens between the loss and the embedding", 0, max(upper["x"]))
    relative = Scale.over("gradient's norm, relative", upper["y"], is_log=True)
    norm = Scale.over("norm of a batch; dotted: as clipping would leave it", lower["x"], is_log=True)
    batches = Scale("share of batches above", 0, 1, format="%")
    looks = {"norm": Look(), "clipped": Look(DOTTED)}
    panels = [
        line_panel(upper, distance, relative, {"": Look()}, height=210, name="fading"),
        line_panel(lower, norm, batches, looks, height=210, interpolate="step-before", name="above"),
    ]
    return stacked(panels).properties(title=corpus)


def _sampling_figure(corpus: str, systems: Systems) -> Figure:
    """Draw grammaticality and the grammar's nats by self-BLEU.

    There is a line per system over temperatures, a dotted one over nuclei, and a star for the held-out text.
    """
    frame = sampling_frame(systems)
    looks = {"temperature": Look(is_marked=True), "top_p": Look(DOTTED, is_marked=True, shape="square")}
    panels = []
    for score, label, factor in (
        ("grammatical", "grammatical sentences (%)", 100),
        ("nats", "their nats per token", 1),
    ):
        drawn = frame.assign(x=frame["self_bleu"], y=factor * frame[score], variant=frame["method"])
        drawn = drawn[["system", "variant", "value", "x", "y"]].dropna(subset=["y"])
        lines = drawn[drawn["variant"] != "text"][::-1]  # names are placed at the less varied end
        text = drawn.loc[drawn["variant"] == "text", ["x", "y"]].head(1).assign(system="held-out text")
        x = Scale.over("self-BLEU: less varied to the right", drawn["x"])
        y = Scale.over(label, drawn["y"])
        ends = lines.groupby(["system", "variant"])
        values = alt.Chart(significant(pd.concat([ends.head(1), ends.tail(1)]).drop(columns="variant")))
        star = alt.Chart(significant(text)).encode(x.x(), y.y())
        star = star.mark_point(shape=STAR, size=150, color=INK, filled=True)
        over = (
            values.mark_text(align="left", dx=4, dy=-5, fontSize=9).encode(x.x(), y.y(), text="value:N"),
            star.encode(tooltip=["system:N", alt.Tooltip("x:Q", title=x.title), alt.Tooltip("y:Q", title=y.title)]),
        )
        panels.append(line_panel(lines, x, y, looks, systems=systems, height=230, over=over, name=score))
    subtitle = "circles: temperatures; squares, dotted: nuclei; star: held-out text"
    return stacked(panels).properties(title={"text": corpus, "subtitle": subtitle})


def _scaling_figure(rows: pd.DataFrame) -> Figure:
    """Draw time and memory by length and width on log scales, with fitted lines and their slopes."""
    looks = {"fitted": Look(), "measured": Look(None, is_marked=True)}
    quantities = {"seconds": ("seconds", 1), "bytes": ("MiB kept for the backward pass", 2**20)}
    panels = []
    for quantity, (label, unit) in quantities.items():
        for varied, title in (("length", "length n, log scale"), ("width", "width d, log scale")):
            parts = []
            for layer, part in rows[rows["varied"] == varied].groupby("layer", sort=False):
                values = part[quantity] / unit
                line = fit_power(part[varied], values)
                fitted = np.exp(line.intercept) * part[varied] ** line.slope
                for variant, y in (("fitted", fitted), ("measured", values)):
                    own = pd.DataFrame({"x": part[varied], "y": y, "variant": variant})
                    parts.append(own.assign(system=f"{layer}: {line.slope:.2f}"))
            lines = pd.concat(parts)
            x = Scale(title, min(lines["x"]) / 1.1, max(lines["x"]) * 1.1, True, sorted(set(lines["x"])), "d")
            y = Scale.over(label, lines["y"], is_log=True)
            panel = line_panel(lines, x, y, looks, width=WIDTH / 2, height=210, name=f"{quantity}_{varied}")
            panels.append(panel)
    subtitle = "points: measured; lines, with their slopes: fitted"
    return stacked(panels, columns=2).properties(title={"text": "Time and memory of layers", "subtitle": subtitle})
