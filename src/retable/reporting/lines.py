"""Line charts with systems' names at the ends of the lines, colours by family, and numbers on hover.

If there are more systems than colours, each system has a separate panel, which shows the other systems in grey.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from retable.reporting.figures import (
    FAINT,
    LINE,
    WIDTH,
    Figure,
    axis_width,
    colours,
    family_colours,
    name_height,
    name_lines,
    names,
)

DOTTED = (2, 3)  # Lengths of a dash and of the gap after it, in pixels.
POINTS = 200  # Maximum number of points per line.
ALL_POINTS = 900  # Approximate maximum number of points per panel.
ACROSS = 2  # Panels per row if each system has a separate panel.
EDGE: dict[str, Any] = {"stroke": "white", "strokeWidth": 4}  # A white edge around names, because lines may cross them.
GAP = 30  # If a line ends within this many pixels of the right edge, its name is beyond the edge.


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; `format` is a number format of D3, by default with as many digits as the ticks
    need.
    """

    title: str
    low: float
    high: float
    is_log: bool = False
    ticks: Sequence[float] | None = None
    format: str | None = None

    @classmethod
    def over(cls, title: str, *values: ArrayLike, is_log: bool = False, margin: float = 0.04) -> "Scale":
        """Return a scale over the range of the values, ignoring NaNs.

        margin: space that is added on both sides, as a share of the range.
        """
        everything = np.concatenate([np.ravel(value).astype(float) for value in values])
        low, high = np.nanmin(everything), np.nanmax(everything)
        if not is_log:
            beyond = margin * (high - low) or 0.5
            return cls(title, low - beyond, high + beyond)
        beyond = (high / low) ** margin if high > low else 1.5
        low, high = low / beyond, high * beyond
        has_many_zeros = high >= 1e9 or low < 1e-4
        return cls(
            title, low, high, True, round_ticks(low, high), "~e" if has_many_zeros else "~s" if high > 1e4 else "~g"
        )

    def x(self, field: str = "x") -> alt.X:
        return alt.X(f"{field}:Q", axis=self._axis(), scale=self._scale(), sort=None)  # lines follow the order of rows

    def y(self, field: str = "y") -> alt.Y:
        return alt.Y(f"{field}:Q", axis=self._axis(), scale=self._scale(), sort=None)

    def _axis(self) -> alt.Axis:
        ticks: dict[str, Any] = {"tickCount": 6} if self.ticks is None else {"values": list(self.ticks)}
        if self.format is not None:
            ticks["format"] = self.format
        return alt.Axis(title=self.title or None, labelOverlap="greedy", labelSeparation=10, **ticks)

    def _scale(self) -> alt.Scale:
        # rounded to eight digits, because further digits differ between machines
        domain = [float(f"{end:.8g}") for end in (self.low, self.high)]
        return alt.Scale(domain=domain, type="log" if self.is_log else "linear", nice=False)

    def pixels(self, values: ArrayLike, length: float) -> NDArray[np.float64]:
        """Convert values to positions on an axis of `length` pixels."""
        low, high, shown = (self._linear(each) for each in (self.low, self.high, values))
        return length * (shown - low) / (high - low)

    def values(self, pixels: ArrayLike, length: float) -> NDArray[np.float64]:
        """Convert positions on an axis of `length` pixels to values."""
        low, high = self._linear(self.low), self._linear(self.high)
        values = low + np.asarray(pixels) / length * (high - low)
        return np.exp(values) if self.is_log else values

    def _linear(self, values: ArrayLike) -> NDArray[np.float64]:
        values = np.asarray(values, dtype=float)
        return np.log(values) if self.is_log else values


@dataclass(frozen=True)
class Look:
    """The style of a variant's line; if `dash` is None, only the points of the line are drawn."""

    dash: tuple[int, int] | None = (1, 0)
    is_marked: bool = False
    shape: str = "circle"


def round_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round numbers between low and high for a log scale.

    If `high` is less than five times `low`, the ticks have equal steps. If `high` is larger, there are as many ticks
    per power of ten as fit.
    """
    if high / low < 5:
        steps = (step * 10.0**power for power in range(-30, 30) for step in (1, 2, 5))
        step = next(step for step in steps if (high - low) / step <= 6)
        return [float(f"{step * i:.6g}") for i in range(ceil(low / step), floor(high / step) + 1)]
    dense = ((10, 15, 20, 30, 50, 70), (10, 20, 30, 50), (10, 20, 50), (10, 30))
    for digits, every in (*((digits, 1) for digits in dense), *(((10,), every) for every in (1, 2, 3, 5, 10))):
        ticks = [float(f"{digit}e{power}") for power in range(-30, 30, every) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 7:
            break
    return ticks


def significant(frame: pd.DataFrame) -> pd.DataFrame:
    """Round floats to five significant digits, which is enough for a figure and saves bytes."""
    fractions = frame.select_dtypes("float")
    return frame.assign(**{name: fractions[name].map(lambda value: float(f"{value:.5g}")) for name in fractions})


def apart(pixels: ArrayLike, length: float, distance: float) -> NDArray[np.float64]:
    """Move positions on an axis as little as possible, so that all are at least `distance` apart.

    length: length of the axis in pixels; the new positions are within the axis if there is room for all of them.
    """
    pixels = np.asarray(pixels, dtype=float)
    order, steps = np.argsort(pixels, kind="stable"), distance * np.arange(len(pixels))
    placed = np.empty_like(pixels)
    # Once the minimum distances are subtracted, positions only have to be non-decreasing, as in isotonic regression.
    free = isotonic_regression(pixels[order] - steps).x
    placed[order] = steps + np.clip(free, 0, max(0, length - steps[-1]))
    return placed


def line_panel(
    frame: pd.DataFrame,
    x: Scale,
    y: Scale,
    looks: Mapping[str, Look],
    *,
    systems: Iterable[str] | None = None,
    bounds: Sequence[tuple[str, float]] = (),
    colour_of: Mapping[str, str] | None = None,
    height: float = 260,
    interpolate: Literal["linear", "step-before"] = "linear",
    has_bars: bool = False,
    over: Sequence[alt.Chart] = (),
    name: str = "point",
) -> Figure:
    """Draw a panel with a line per system and variant, through the rows of `frame` in their order.

    Args:
        frame: has the columns system, variant, x and y. Optional columns low and high are drawn as a band.
        x: scale of the horizontal axis.
        y: scale of the vertical axis.
        looks: style of each variant. A system's name is at the end of the line of its first variant.
        systems: all systems of the figure, so that panels without some of them use the same colours.
        bounds: names and values of dashed lines across the panel.
        colour_of: colours of the systems; by default those of their families.
        height: height of the panel in pixels.
        interpolate: how lines are interpolated, as in Vega-Lite.
        has_bars: draw a bar at each point instead of a band.
        over: additional layers, which have separate data.
        name: name of the panel, unique among the panels that `stacked` joins.
    """
    systems = sorted(systems or set(frame["system"]))
    if "low" in frame and not (frame["low"] < frame["high"]).any():
        frame = frame.drop(columns=["low", "high"])
    frame = significant(_thinned(frame, min(POINTS, max(POINTS // 4, ALL_POINTS // len(systems)))))
    own_colours = colour_of or colours(systems)
    is_apart = own_colours is None
    named = [*systems, *dict.fromkeys(name for name, _ in bounds)]
    width = (WIDTH - 60) / ACROSS - 20 if is_apart else WIDTH - 50 - axis_width(named)
    height = height / 2 if is_apart else height
    colour = alt.Color("system:N", legend=None)
    own_colours = own_colours or {system: next(iter(family_colours([system]).values())) for system in systems}
    colour = colour.scale(domain=named, range=[own_colours.get(name, FAINT) for name in named])
    dashes = {variant: look.dash for variant, look in looks.items() if look.dash is not None}
    dash = alt.StrokeDash("variant:N", legend=None).scale(domain=[*dashes], range=[*dashes.values()])

    def lines(chart: alt.Chart) -> alt.Chart:
        chart = chart.transform_filter(alt.FieldOneOfPredicate("variant", [*dashes]))
        return chart.mark_line(strokeWidth=2, interpolate=interpolate).encode(x.x(), y.y(), dash)

    own = alt.Chart() if is_apart else alt.Chart(frame)  # facets get their data from the panel
    layers: list[alt.Chart] = []
    if is_apart:
        others = _thinned(frame, POINTS // 8)[["system", "variant", "x", "y"]].rename(columns={"system": "other"})
        background = lines(alt.Chart(others)).mark_line(strokeWidth=1, opacity=0.25, interpolate=interpolate)
        layers.append(background.encode(color=alt.value(FAINT), detail="other:N"))
    if "low" in frame:
        spread = own.encode(x.x(), y.y("low"), alt.Y2("high"), colour, alt.Detail("variant:N"))
        layers.append(spread.mark_rule(strokeWidth=1.3) if has_bars else spread.mark_area(opacity=0.2))
    drawn = [layer.encode(colour) for layer in (lines(own), *_points(own, frame, x, y, looks, name))]
    if is_apart:
        layers.insert(0, drawn.pop())  # in facets, Altair attaches the hover selection to the first layer
    layers += drawn
    layers += _bounds(bounds, y, is_named=is_apart)
    if not is_apart:
        layers += _ends(frame, [*looks], bounds, x, y, colour, width, height)
    panel = alt.layer(*layers, *over).properties(width=width, height=height)
    if not is_apart:
        return panel
    lines_of = {system: name_lines(system) for system in systems}
    header = alt.Header(labelExpr=f"{json.dumps(lines_of, ensure_ascii=False)}[datum.value] || datum.value")
    return panel.properties(data=frame).facet(alt.Facet("system:N", header=header), columns=ACROSS, spacing=14)


def stacked(panels: Sequence[Figure]) -> alt.ConcatChart:
    """Join panels vertically; each panel has separate scales of colours, shapes and dashes."""
    independent: Any = dict.fromkeys(("color", "shape", "strokeDash"), "independent")
    return alt.concat(*panels, columns=1).resolve_scale(**independent)


def _thinned(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Keep at most `most` evenly spaced points of each line, including the first and the last."""
    parts = [part for _, part in frame.groupby(["system", "variant"], sort=False)]
    places = [np.linspace(0, len(part) - 1, min(most, len(part))).round().astype(int) for part in parts]
    return pd.concat([part.iloc[kept] for part, kept in zip(parts, places, strict=True)], ignore_index=True)


def _points(
    own: alt.Chart, frame: pd.DataFrame, x: Scale, y: Scale, looks: Mapping[str, Look], name: str
) -> list[alt.Chart]:
    """Return layers with the points of marked lines, and with the point nearest to the pointer and its tooltip."""
    shape = alt.Shape("variant:N", legend=None)
    shape = shape.scale(domain=[*looks], range=[look.shape for look in looks.values()])
    chart = own.mark_point(filled=True, size=36, opacity=1).encode(x.x(), y.y(), shape)
    titles = {"system": "system", "variant": " ", "x": x.title, "y": y.title, "low": "from", "high": "to"}
    tooltip = [alt.Tooltip(field, title=title) for field, title in titles.items() if field in frame]
    nearest = alt.selection_point(
        name=f"nearest_{name}", nearest=True, on="pointerover", clear="pointerout", empty=False
    )
    shown = alt.when(nearest).then(alt.value(1)).otherwise(alt.value(0))
    hover = chart.encode(opacity=shown, tooltip=tooltip).add_params(nearest)
    marked = [variant for variant, look in looks.items() if look.is_marked]
    return [chart.transform_filter(alt.FieldOneOfPredicate("variant", marked)), hover] if marked else [hover]


def _bounds(bounds: Sequence[tuple[str, float]], y: Scale, is_named: bool) -> list[alt.Chart]:
    if not bounds:
        return []
    table = alt.Chart(significant(pd.DataFrame(bounds, columns=["system", "y"]))).encode(y.y())
    lines = table.mark_rule(color=FAINT, strokeDash=[6, 3], strokeWidth=1.5).encode(
        tooltip=["system:N", alt.Tooltip("y:Q", title=y.title)]
    )
    texts = table.mark_text(align="left", baseline="bottom", dx=3, dy=-1)
    return [lines, texts.encode(x=alt.value(0), text="system:N")] if is_named else [lines]


def _ends(
    frame: pd.DataFrame,
    variants: Sequence[str],
    bounds: Sequence[tuple[str, float]],
    x: Scale,
    y: Scale,
    colour: alt.Color,
    width: float,
    height: float,
) -> list[alt.Chart]:
    """Return layers with the systems' names at the ends of their lines.

    A short line in the system's colour connects each name to its line. If a line ends near the right edge, the system's
    name is in a column beyond the edge.
    """
    order = frame["variant"].map(variants.index)
    firsts = frame[order == order.groupby(frame["system"]).transform("min")]
    ends = firsts.drop_duplicates("system", keep="last")[["system", "x", "y"]]
    if bounds:
        ends = pd.concat([ends, pd.DataFrame(bounds, columns=["system", "y"]).assign(x=x.high)])
    middle = LINE / 2 + 3  # height of the lowest name's centre above the axis
    pixels = apart(y.pixels(ends["y"], height) - middle, height - middle, 2 + name_height(ends["system"]))
    places = y.values(middle + pixels, height)
    right = x.pixels(ends["x"], width)
    beyond = np.where(right > width - GAP, width, right) + 14
    table = alt.Chart(significant(ends.assign(place=places, beyond=x.values(beyond, width))))
    leaders = table.mark_rule(strokeWidth=1).encode(x.x(), y.y(), alt.X2("beyond:Q"), alt.Y2("place:Q"), colour)
    rows = table.encode(y.y("place"), x.x("beyond"))
    edges, texts = (names(rows, ends["system"], "left", 3, **edge) for edge in (EDGE, {}))
    return [leaders, *edges, *texts]
