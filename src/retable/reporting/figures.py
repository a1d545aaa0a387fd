"""What all figures of a report share: their theme, colours and files. Equal data give equal bytes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import vl_convert
from altair.typing import ChartType

from retable.core.escaping import visible

Figure: TypeAlias = ChartType

# after Okabe and Ito (2008), told apart by the colour-blind; here in tones for white and for black paper
COLOURS = ("#0b7fbf", "#d55e00", "#0a9a74", "#c2659a", "#b58900", "#7a6ff0", "#45a9dc", "#7f7f7f")
INK = "#767679"  # read on white and on black
WIDTH = 720  # of a figure in all, about
LETTER = 6.2  # of a name, about


@alt.theme.register("retable", enable=True)
def theme() -> alt.theme.ThemeConfig:
    """Of every chart that is made into a specification while this module is loaded."""
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
            # axes of names alone
            "axisDiscrete": {"title": None, "domain": False, "ticks": False, "grid": False, "labelPadding": 6},
            "header": {**text, "title": None, "labelAnchor": "start", "labelFontSize": 12, "labelPadding": 4},
            "text": {"color": INK, "fontSize": 11},
        }
    }  # fmt: skip


alt.data_transformers.disable_max_rows()


def beside(names: Iterable[str]) -> float:
    """The width that these names and an axis take."""
    return 50 + LETTER * max(map(len, names), default=0)


def svg_of(figure: Figure) -> str:
    """The figure as it stands before anything is chosen in it."""
    return vl_convert.vegalite_to_svg(_drawn(figure.to_dict()), allowed_base_urls=[])


def _drawn(part: Any) -> Any:
    """The specification without what a pointer alone brings to light, which may be most of a file; and its texts
    `visible`: at a character that XML lacks the conversion ends the process."""
    match part:
        case str():
            return visible(part)
        case dict():
            return {key: _drawn(inner) for key, inner in part.items()}
        case list():
            return [_drawn(inner) for inner in part if not _waits_for_a_pointer(inner)]
    return part


def _waits_for_a_pointer(part: Any) -> bool:
    """Whether it is a selection, or marks that one shows."""
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
