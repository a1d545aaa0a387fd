"""The theme, colours and file format of all figures of a report. Equal data give equal bytes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import vl_convert
from altair.typing import ChartType

from retable.core.escaping import visible

Figure: TypeAlias = ChartType

# after Okabe and Ito (2008), distinguishable by colour-blind readers, in tones for white and black backgrounds
COLOURS = ("#0b7fbf", "#d55e00", "#0a9a74", "#c2659a", "#b58900", "#7a6ff0", "#45a9dc", "#7f7f7f")
INK = "#767679"  # readable on white and on black
WIDTH = 720  # approximate width of a figure, in pixels
LETTER = 6.2  # approximate width of a letter, in pixels


@alt.theme.register("retable", enable=True)
def theme() -> alt.theme.ThemeConfig:
    """Return the theme of every chart that is converted to a specification while this module is loaded."""
    text: Any = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "config": {
            "aria": False,  # the page describes a figure as a whole
            "background": "transparent",
            "font": "sans-serif",
            "view": {"stroke": None},
            "title": {
                "anchor": "start", "frame": "group", "color": INK, "subtitleColor": INK, "fontSize": 13,
                "subtitleFontSize": 11, "subtitlePadding": 5, "offset": 12,
            },
            "axis": {
                **text, "domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.2, "labelLimit": 0,
            },
            # axes of names
            "axisDiscrete": {"title": None, "domain": False, "ticks": False, "grid": False, "labelPadding": 6},
            "header": {**text, "title": None, "labelAnchor": "start", "labelFontSize": 12, "labelPadding": 4},
            "text": {"color": INK, "fontSize": 11},
        }
    }  # fmt: skip


alt.data_transformers.disable_max_rows()


def axis_width(names: Iterable[str]) -> float:
    """Return the width, in pixels, of an axis with these names."""
    return 50 + LETTER * max(map(len, names), default=0)


def svg_of(figure: Figure) -> str:
    """Return the SVG of a figure before any interaction."""
    return vl_convert.vegalite_to_svg(_drawn(figure.to_dict()), allowed_base_urls=[])


def _drawn(part: Any) -> Any:
    """Remove the parts of a specification that need a pointer, often most of a file, and escape invisible characters.

    The conversion to SVG ends the process at a character that XML does not allow.
    """
    match part:
        case str():
            return visible(part)
        case dict():
            return {key: _drawn(inner) for key, inner in part.items()}
        case list():
            return [_drawn(inner) for inner in part if not _waits_for_a_pointer(inner)]
    return part


def _waits_for_a_pointer(part: Any) -> bool:
    """Check whether a part is a selection, or marks that one shows."""
    match part:
        case {"select": _} | {"encoding": {"opacity": {"condition": _, "value": 0}}}:
            return True
    return False


def with_claim(figure: Figure, claim: str) -> Figure:
    """Return the figure with a finding as its title; its own title opens the subtitle."""
    title = figure.to_dict().get("title", {})
    own = [title] if isinstance(title, str) else [title.get("text", ""), title.get("subtitle", "")]
    return figure.properties(title={"text": claim, "subtitle": ": ".join(filter(None, own))})


def write_figure(figure: Figure, path: Path) -> None:
    """Write the SVG; equal figures give equal bytes."""
    path.write_text(svg_of(figure), encoding="utf-8")
