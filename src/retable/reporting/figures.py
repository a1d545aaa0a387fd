"""The theme, colours and file format of all figures of a report.

Equal data give byte-identical figures.
"""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import altair as alt
import vl_convert
from altair.typing import ChartType

from retable.core.escaping import visible
from retable.reporting.names import display_name

Figure: TypeAlias = ChartType

# Colours of Okabe and Ito (2008), which colour-blind readers can distinguish. Orange, sky blue, purple and yellow are
# darkened, so that thin lines are visible on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#c0649c", "#c78500", "#3d9bd1", "#8a7a00", "#595959")
INK = "#333333"
FAINT = "#8c8c8c"  # Colour of bounds, and of systems in the background.
# Approximate width of a figure in pixels. On a phone, where the figure is scaled down, text is still 9 pixels high.
WIDTH = 500
SIZE, TITLE_SIZE = 13, 15  # Font sizes of texts and titles.
BOLD = 1.13  # Width of bold text relative to normal text.
LINE = 15  # Height of a line of text, in pixels.
NAME_WIDTH = 208  # Maximum width of a system's name in pixels; longer names have several lines.

# For each family of systems: its colour, and a pattern for display names. A system belongs to the first family whose
# pattern matches.
FAMILIES = {
    "combination": ("#333333", r"\+ (?!ELMo|attention)|mixture|interpolat|ensemble|average of"),
    "word vectors": (COLOURS[6], r"^(skip-?gram|cbow|glove|fasttext|word2vec)"),
    "encoder–decoder": (COLOURS[3], r"t5|bart|prefix (lm|language)|encoder[–-]decoder|s2s|translation|summar"),
    "Transformer encoder": (
        COLOURS[5],
        r"(?<!collo)bert|electra|vision transformer|\bvit\b|minilm|mpnet|sentence encoder",
    ),
    "Transformer decoder": (COLOURS[0], r"gpt|transformer|self-attentive"),
    "recurrent": (COLOURS[2], r"lstm|rnn|gru\b|elman|elmo|recurrent|bidaf|span ranker|(?<!window )tagger|labeller"),
    "feed-forward": (
        COLOURS[4],
        r"feed|window|neural \d|log-bilinear|conv(olution|-)|\bg?cnn|bag of words|mean of|averaging|lenet",
    ),
    "n-grams": (COLOURS[1], r"gram\b|\bkn\d|witten|unigram|sparse non-negative|cache"),
}
OTHER = "other"
_PLACES = re.compile(r' (?:d|transform|opacity|[xy]2)="[^"]*"')
_DECIMALS = re.compile(r"-?\d+(?:\.\d+)?e-\d+|-?\d+\.\d{4,}")
# Widths of letters in DejaVu Sans as shares of the font size, rounded up. Letters that are not listed have the width
# 0.64.
_WIDTHS = {
    letter: width
    for width, letters in (
        (0.28, "'ijl"), (0.32, " ,.I·"), (0.36, "-/:;\\f|"), (0.41, "!()[]t"), (0.46, '"r'), (0.56, "*J`?L_csz–"),
        (0.6, "kvxy"), (0.7, "ABEKPSVXYZα"), (0.79, "CHNRU&DGOQ"), (0.84, "#+<=>^w~×−±≥≤"), (1.02, "M%Wm—…@"),
    )
    for letter in letters
}  # fmt: skip
SHADES = 3  # maximum number of systems of one family that a panel can distinguish


@alt.theme.register("retable", enable=True)
def theme() -> alt.theme.ThemeConfig:
    """Return the Altair theme, which applies to all charts once this module is imported."""
    text: Any = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": SIZE,
        "titleFontSize": SIZE,
        "titleFontWeight": "normal",
    }
    return {
        "config": {
            "aria": False,  # no descriptions of single marks, because the page describes the whole figure
            "background": "white",
            "font": "sans-serif",
            "view": {"stroke": None},
            "title": {
                "anchor": "start", "frame": "bounds", "color": INK, "subtitleColor": INK, "fontSize": TITLE_SIZE,
                "subtitleFontSize": SIZE, "subtitlePadding": 5, "offset": 12, "lineHeight": LINE + 3,
                "subtitleLineHeight": LINE + 1,
            },
            "axis": {
                **text, "domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.15, "labelLimit": 0,
                "titlePadding": 10,
            },
            # axes that show names
            "axisDiscrete": {
                "title": None, "domain": False, "ticks": False, "grid": False, "labelPadding": 6,
                "labelLineHeight": LINE,
            },
            "header": {
                **text, "title": None, "labelAnchor": "start", "labelPadding": 4, "labelLineHeight": LINE,
                "labelFontWeight": "bold",
            },
            "legend": {
                **text, "title": None, "orient": "bottom", "columnPadding": 24, "offset": 12, "columns": 2,
                "labelLimit": 0,
                "symbolType": "circle", "symbolSize": 60, "symbolOpacity": 1,
            },
            "text": {"color": INK, "fontSize": SIZE, "lineHeight": LINE},
        }
    }  # fmt: skip


alt.data_transformers.disable_max_rows()


def family(system: str) -> str:
    """Return the family of a system, by its display name."""
    name = display_name(system)
    matches = (each for each, (_, pattern) in FAMILIES.items() if re.search(pattern, name, re.IGNORECASE))
    return next(matches, OTHER)


def family_colours(systems: Iterable[str]) -> dict[str, str]:
    """Return the colour of each family among the systems, in the order of a legend, n-grams first."""
    present, order = {*map(family, systems)}, [*reversed(FAMILIES), OTHER]
    return {name: FAMILIES[name][0] if name in FAMILIES else COLOURS[-1] for name in order if name in present}


def colours(systems: Iterable[str]) -> dict[str, str] | None:
    """Return a colour per system: a shade of its family's colour.

    Systems without a family get colours that no family among these systems has. Returns None if a family has more than
    SHADES systems, or if there are too few colours.
    """
    systems = list(systems)
    shares = Counter(map(family, systems))
    used = {FAMILIES[name][0] for name in shares if name in FAMILIES}
    free = [colour for colour in COLOURS if colour not in used]
    if shares.pop(OTHER, 0) > len(free) or max(shares.values(), default=0) > SHADES or len(systems) > len(COLOURS):
        return None
    chosen, counts = {}, Counter[str]()
    for system in systems:
        name = family(system)
        chosen[system] = shade(FAMILIES[name][0], counts[name]) if name in FAMILIES else free[counts[name]]
        counts[name] += 1
    return chosen


def shade(colour: str, number: int) -> str:
    """Return a shade of a colour: the colour itself for 0, darker for 1, lighter for 2."""
    towards, share = ((0, 0.0), (0, 0.5), (255, 0.5))[number]
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + share * (towards - part)):02x}" for part in parts)


def text_width(text: str, size: float = SIZE) -> float:
    """Return an upper bound of a text's width in pixels: its width in DejaVu Sans, which is wider than Arial."""
    return size * sum(_WIDTHS.get(letter, 0.64 if letter < "\u2000" else 1.0) for letter in text)


def wrapped(text: str, width: float, size: float = SIZE) -> list[str]:
    """Split a text at spaces into lines of about equal length.

    A line is wider than `width` only if it is a single word.
    """
    lines = _greedy(text, width, size)
    while len(shorter := _greedy(text, 0.95 * width, size)) == len(lines) > 1:
        width, lines = 0.95 * width, shorter
    return lines


def _greedy(text: str, width: float, size: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def name_lines(system: str) -> list[str]:
    """Return the display name of a system, split into lines of at most NAME_WIDTH."""
    return wrapped(display_name(system), NAME_WIDTH)


def names(
    rows: alt.Chart, systems: Iterable[str], align: Literal["left", "right"] = "right", dx: float = -6, **mark: Any
) -> list[alt.Chart]:
    """Return chart layers with the names of systems, each vertically centred at its row."""
    by_lines: dict[int, dict[str, list[str]]] = defaultdict(dict)
    for system in systems:
        lines = [visible(line) for line in name_lines(system)]
        by_lines[len(lines)][system] = lines
    layers = []
    for count, lines_of in by_lines.items():
        own = rows.transform_filter(alt.FieldOneOfPredicate("system", [*lines_of]))
        own = own.transform_calculate(name=f"{json.dumps(lines_of, ensure_ascii=False)}[datum.system] || datum.system")
        layers.append(own.mark_text(align=align, dx=dx, dy=(1 - count) * LINE / 2, **mark).encode(text="name:N"))
    return layers


def axis_width(systems: Iterable[str]) -> float:
    """Return the width, in pixels, of an axis with the names of these systems."""
    return 10 + max((text_width(line) for system in systems for line in name_lines(system)), default=0)


def name_height(systems: Iterable[str]) -> float:
    """Return the height, in pixels, of the tallest name of these systems."""
    return LINE * max((len(name_lines(system)) for system in systems), default=1)


def titled(figure: Figure, title: str, *subtitle: str) -> Figure:
    """Return the figure with a title and the parts of a subtitle, in lines that fit its width."""
    heading: Any = {
        "text": wrapped(title, WIDTH, BOLD * TITLE_SIZE), "subtitle": wrapped("; ".join(filter(None, subtitle)), WIDTH)
    }  # fmt: skip
    return figure.properties(title=heading)


def with_claim(figure: Figure, claim: str) -> Figure:
    """Return the figure with a finding as its title; its old title begins the subtitle."""
    title: Any = figure.to_dict()["title"]
    own, subtitle = (" ".join(title[key]) for key in ("text", "subtitle"))
    return titled(figure, claim, f"{own}: {subtitle}" if subtitle else own)


def svg_of(figure: Figure) -> str:
    """Convert a figure to SVG without its interactive parts, with coordinates of three decimals.

    Further decimals differ between processors, which add numbers in different orders.
    """
    return rounded(_roomy(vl_convert.vegalite_to_svg(_drawn(figure.to_dict()), allowed_base_urls=[])))


def rounded(svg: str) -> str:
    """Round the coordinates and opacities of an SVG to three decimals, and leave its texts unchanged."""
    return _PLACES.sub(
        lambda places: _DECIMALS.sub(lambda number: f"{round(float(number[0]), 3) + 0.0:.3f}", places[0]), svg
    )


def _drawn(part: Any) -> Any:
    """Remove the interactive parts of a specification, and escape invisible characters.

    The interactive parts often make up most of a file. Without the escapes, a character that XML does not allow would
    end the whole process during the conversion to SVG.
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
    """Check whether a part of a chart is a selection, or has marks shown only if selected."""
    match part:
        case {"select": _} | {"encoding": {"opacity": {"condition": _, "value": 0}}}:
            return True
    return False


def _roomy(svg: str) -> str:
    """Widen the canvas of an SVG, so that its texts also fit in a font wider than the one used for layout."""
    width, height = (float(size) for size in re.findall(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg)[0])
    low, high = 0.0, width
    for left, right in _extents(ElementTree.fromstring(svg), 0.0):  # noqa: S314 - it is our own
        low, high = min(low, left - 2), max(high, right + 2)
    if (low, high) == (0, width):
        return svg
    low, wide = round(low), round(high) - round(low)
    head = f'width="{wide}" height="{height:g}" viewBox="{low} 0 {wide} {height:g}"'
    svg = re.sub(r'width="[\d.]+" height="[\d.]+" viewBox="[^"]*"', head, svg, count=1)
    return re.sub(r'<rect width="[\d.]+"', f'<rect x="{low}" width="{wide}"', svg, count=1)


def _extents(element: ElementTree.Element, x: float) -> Iterable[tuple[float, float]]:
    """Yield the left and right end of each unrotated text in an SVG element.

    x: horizontal position of the element's parent.
    """
    transform = element.get("transform", "")
    if moved := re.match(r"translate\((-?[\d.]+)", transform):
        x += float(moved[1])
    if element.tag.endswith("}text"):
        if "rotate" not in transform:
            size = float(element.get("font-size", f"{SIZE}").removesuffix("px"))
            size *= BOLD if element.get("font-weight") == "bold" else 1
            lines = [*element] or [element]
            length = max(text_width("".join(line.itertext()), size) for line in lines)
            before = {"middle": 0.5, "end": 1.0}.get(element.get("text-anchor", ""), 0.0)
            yield x - before * length, x + (1 - before) * length
        return
    for inner in element:
        yield from _extents(inner, x)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as SVG; equal figures give byte-identical files."""
    path.write_text(svg_of(figure), encoding="utf-8")
