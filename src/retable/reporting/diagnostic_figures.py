"""Figures of the diagnostic benchmarks, and of the time and memory of layers.

Equal data give byte-identical figures.
"""

from collections.abc import Callable, Iterable

import altair as alt
import numpy as np
import pandas as pd

from retable.metrics.regression import fit_power
from retable.reporting.diagnostics import phenomena_frame, sampling_frame
from retable.reporting.figures import (
    INK,
    SIZE,
    WIDTH,
    Figure,
    axis_width,
    family,
    family_colours,
    name_height,
    names,
    text_width,
    titled,
)
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, significant, stacked
from retable.reporting.results import Result, Systems, by_corpus

FEW = 100  # minimum number of tokens per bin; means over fewer tokens are too uncertain to draw
PANELS = {
    "total": "All tokens", "local": "Neighbouring words", "agreement": "Agreement", "nesting": "Nesting",
    "repetition": "Repetition",
}  # fmt: skip
BAR = 13  # Height of a bar, in pixels.
GAP = 6  # Distance between two bars, in pixels.
STAR = "M0,-1L0.29,-0.4L0.95,-0.31L0.48,0.15L0.59,0.81L0,0.5L-0.59,0.81L-0.48,0.15L-0.95,-0.31L-0.29,-0.4Z"


def diagnostic_figures(results: Iterable[Result]) -> list[tuple[str, str, dict[str, Figure]]]:
    """Return, for each kind of figure, its title, the prefix of its file names, and its figures by corpus or device."""
    results = list(results)
    kinds: list[tuple[str, str, Callable[[str, Systems], Figure]]] = [
        ("Excess loss by what determines a token", "phenomena", _phenomena_figure),
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
    return phenomena_figure(corpus, phenomena_frame(systems))


def phenomena_figure(corpus: str, frame: pd.DataFrame) -> Figure:
    """Draw the excess loss: a panel per phenomenon, with a bar and a 95 % interval per system.

    Systems are sorted by their excess over all tokens.

    frame: a frame from `retable.reporting.diagnostics.phenomena_frame`.
    """
    frame = frame.drop(columns=["runs", "p_best"])
    order = frame[frame["phenomenon"] == "total"].sort_values("mean", ascending=False)["system"].tolist()
    low, high = min(0, frame["ci_low"].min()), frame["ci_high"].max()
    frame = frame.assign(end=frame["ci_high"].clip(lower=0), family=frame["system"].map(family))
    width = (WIDTH - axis_width(order)) / 2 - GAP
    # share of the figure's width that is reserved for the numbers next to the bars
    room = (text_width("0.00") + 8) / width
    scale = alt.Scale(domain=[low, low + (high - low) / (1 - room)], nice=False)
    titles = {"mean": "nats above the entropy", "ci_low": "from", "ci_high": "to", "entropy": "entropy", "n": "runs"}
    tooltip = [alt.Tooltip("phenomenon:N"), alt.Tooltip("system:N")]
    tooltip += [alt.Tooltip(f"{field}:Q", title=title, format=".4~f") for field, title in titles.items()]
    families = family_colours(order)
    colour = alt.Color("family:N", legend=alt.Legend() if len(families) > 1 else None)
    colour = colour.scale(domain=[*families], range=[*families.values()])
    panels = []
    for number, (phenomenon, title) in enumerate(PANELS.items()):
        is_last = number >= len(PANELS) - 2
        values = alt.Axis(tickCount=3, title="nats per token" if is_last else None, labels=is_last, ticks=is_last)
        mean = alt.X("mean:Q", scale=scale, axis=values)
        rows = alt.Chart(significant(frame[frame["phenomenon"] == phenomenon]))
        rows = rows.encode(alt.Y("system:N", sort=order, axis=None), tooltip=tooltip)
        layers = [
            rows.mark_bar(height=BAR).encode(mean, colour),
            rows.mark_rule(color=INK).encode(alt.X("ci_low:Q"), alt.X2("ci_high:Q")),
            rows.mark_text(align="left", dx=7).encode(alt.X("end:Q"), alt.Text("mean:Q", format=".2f")),
        ]
        layers += names(rows.encode(x=alt.value(0)), order) if number % 2 == 0 else []
        heading = alt.TitleParams(title, frame="group", fontSize=SIZE, offset=4)
        size = {"width": width, "height": alt.Step(GAP + name_height(order))}
        panels.append(alt.layer(*layers).properties(title=heading, **size))
    subtitle = f"corpus {corpus}, nats per token above the true distribution, lower is better"
    figure = alt.concat(*panels, columns=2, spacing={"row": 12, "column": 2 * GAP}).resolve_scale(x="shared")
    return titled(figure, "Excess loss by what determines a token", subtitle, "lines: 95 % intervals")


def _positions_figure(corpus: str, systems: Systems) -> Figure:
    """Draw the loss by position, a line per system, averaged over seeds.

    Positions in the sentence, in the document or line, and in the context window have separate panels, if measured.
    """
    parts = [run.tables["positions"].assign(system=name) for name, runs in systems.items() for run in runs]
    frame = pd.concat(parts)
    frame = frame[frame["tokens"] >= FEW]
    bins = frame.groupby(["where", "system", "first", "last"], as_index=False)["nats"].mean()
    bins = bins.assign(x=np.sqrt(bins["first"] * bins["last"]), y=bins["nats"], variant="")
    titles = {
        "sentence": "in the sentence",
        "unit": "in the document or line",
        "window": "in a window without earlier context",
    }
    panels = []
    for where, title in titles.items():
        if len(lines := bins.loc[bins["where"] == where, ["system", "variant", "x", "y"]]):
            low, high = min(lines["x"]) / 1.1, max(lines["x"]) * 1.1
            powers = [2.0**k for k in range(30) if low <= 2**k <= high]
            x = Scale(f"position {title}, log scale", low, high, True, powers, "d")
            y = Scale.over("nats per token", lines["y"])
            look = {"": Look(is_marked=True)}
            panels.append(line_panel(lines, x, y, look, systems=systems, height=190, name=where))
    return titled(stacked(panels), "Loss by position", f"corpus {corpus}, test tokens, mean over seeds")


def _gradients_figure(corpus: str, systems: Systems) -> Figure:
    """Draw two panels: gradient norms by distance in tokens, and the share of batches that exceed each norm.

    Each system has a line. Dotted lines show norms after clipping.
    """
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
    distance = Scale("distance, tokens from the embedding to the loss", 0, max(upper["x"]))
    relative = Scale.over("relative gradient norm, log scale", upper["y"], is_log=True)
    norm = Scale.over("gradient norm of a batch, log scale", lower["x"], is_log=True)
    batches = Scale("batches above the norm", 0, 1, format="%")
    looks = {"norm": Look(), "clipped": Look(DOTTED)}
    panels = [
        line_panel(upper, distance, relative, {"": Look()}, height=210, name="fading"),
        line_panel(lower, norm, batches, looks, height=210, interpolate="step-before", name="above"),
    ]
    has_clipped = (
        lower.loc[lower["variant"] == "norm", "x"].to_numpy() > lower.loc[lower["variant"] == "clipped", "x"]
    ).any()
    notes = ["below: share of batches with a larger norm"] + ["dotted: after clipping"] * bool(has_clipped)
    return titled(stacked(panels), "Gradients through time", f"corpus {corpus}, above: by distance", *notes)


def _sampling_figure(corpus: str, systems: Systems) -> Figure:
    return sampling_figure(corpus, sampling_frame(systems))


def sampling_figure(corpus: str, frame: pd.DataFrame) -> Figure:
    """Draw the grammaticality of samples, and their loss under the grammar, by self-BLEU.

    Each system has a line over temperatures and a dotted line over values of top-p. A star marks the held-out text.

    frame: a frame from `retable.reporting.diagnostics.sampling_frame`.
    """
    systems = set(frame["system"])
    looks = {"temperature": Look(is_marked=True), "top_p": Look(DOTTED, is_marked=True, shape="square")}
    panels = []
    for score, label, factor in (
        ("grammatical", "grammatical sentences, %", 100),
        ("nats", "nats per token under the grammar", 1),
    ):
        drawn = frame.assign(x=frame["self_bleu"], y=factor * frame[score], variant=frame["method"])
        drawn = drawn[["system", "variant", "value", "x", "y"]].dropna(subset=["y"])
        # reversed, so that names are at the end of the lines with less varied samples
        lines = drawn[drawn["variant"] != "text"][::-1]
        text = drawn.loc[drawn["variant"] == "text", ["x", "y"]].head(1).assign(system="held-out text")
        x = Scale.over("self-BLEU (higher: less varied)", drawn["x"])
        y = Scale.over(label, drawn["y"])
        star = alt.Chart(significant(text)).encode(x.x(), y.y())
        star = star.mark_point(shape=STAR, size=150, color=INK, filled=True)
        tooltip = ["system:N", alt.Tooltip("x:Q", title=x.title), alt.Tooltip("y:Q", title=y.title)]
        over = [star.encode(tooltip=tooltip)]
        panels.append(line_panel(lines, x, y, looks, systems=systems, height=230, over=over, name=score))
    notes = []
    for method, title in (("temperature", "circles: temperature"), ("top_p", "squares, dotted: top-p")):
        values = sorted(pd.to_numeric(frame.loc[frame["method"] == method, "value"]))
        notes += [f"{title} from {values[-1]:g} (left) to {values[0]:g}"] if values else []
    notes.append("star: held-out text")
    return titled(stacked(panels), "Quality and diversity of samples", f"corpus {corpus}", *notes)


def _scaling_figure(rows: pd.DataFrame) -> Figure:
    """Draw the time and memory of layers by length and by width, with fitted power laws."""
    looks = {"fitted": Look(), "measured": Look(None, is_marked=True)}
    quantities = {"seconds": ("seconds, log scale", 1), "bytes": ("MiB kept, log scale", 2**20)}
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
            panels.append(line_panel(lines, x, y, looks, height=190, name=f"{quantity}_{varied}"))
    subtitle = "points: measured; lines: fitted, with their slopes"
    return titled(stacked(panels), "Time and memory of layers", subtitle)
