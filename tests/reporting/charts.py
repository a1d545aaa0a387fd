"""Return the data, marks and texts of a chart."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd

from retable.reporting.figures import svg_of

_MADE: dict = {}


def _once(function, figure):
    """Return a function that computes `function(figure)` once, because altair takes up to a second to check a
    figure.
    """
    key = function, id(figure)
    if key not in _MADE:
        _MADE[key] = function(figure), figure  # the figure is kept alive, so that no other figure gets its id
    return _MADE[key][0]


def specified(figure):
    return _once(type(figure).to_dict, figure)


def drawn(figure):
    return _once(svg_of, figure)


def tables(figure, *columns):
    """Return the tables that have these columns, in the order of the figure's marks."""
    found = [pd.DataFrame(rows) for rows in specified(figure)["datasets"].values()]
    return [table for table in found if set(columns) <= set(table)]


def table(figure, *columns):
    (found,) = tables(figure, *columns)
    return found


def line(figure, system, variant=None):
    """Return places and heights of the points of a line, in a figure of one panel."""
    rows = table(figure, "system", "variant")
    rows = rows[(rows["system"] == system) & (rows["variant"] == (variant or rows["variant"].iloc[0]))]
    return rows["x"].tolist(), rows["y"].tolist()


def ends(figure):
    """Return the names at the ends of lines in the only panel, with the height at which each line ends."""
    rows = table(figure, "place")
    return dict(zip(rows["system"], rows["y"], strict=True))


def subtitle(figure):
    return " ".join(specified(figure)["title"]["subtitle"])


def marks(specification, kind):
    """Return the parts of a specification that draw marks of this kind."""
    if isinstance(specification, list):
        return [mark for part in specification for mark in marks(part, kind)]
    if not isinstance(specification, dict):
        return []
    own = specification.get("mark")
    inner = [mark for name, part in specification.items() if name != "datasets" for mark in marks(part, kind)]
    return [specification, *inner] if isinstance(own, dict) and own.get("type") == kind else inner


def texts(figure):
    elements = ElementTree.fromstring(drawn(figure)).iter("{http://www.w3.org/2000/svg}text")
    return [" ".join(part.strip() for part in element.itertext()) for element in elements]


def boxes(svg, font, bold):
    """Return the texts of an SVG, each with the corners of its lines in a font, (4, 2), and the canvas (4,)."""
    root = ElementTree.fromstring(svg)
    found: list = []
    _box(root, np.eye(3), {"normal": font, "bold": bold}, found)
    return found, np.array(root.get("viewBox").split(), dtype=float)


def _box(element, place, fonts, found):
    for kind, numbers in re.findall(r"(translate|rotate)\(([^)]*)\)", element.get("transform", "")):
        values = [float(number) for number in numbers.split(",")]
        turn = np.radians(values[0]) if kind == "rotate" else 0
        shift = (values[0], values[1]) if kind == "translate" else (0, 0)
        step = [[np.cos(turn), -np.sin(turn), shift[0]], [np.sin(turn), np.cos(turn), shift[1]], [0, 0, 1]]
        place = place @ np.array(step)
    if not element.tag.endswith("}text"):
        for inner in element:
            _box(inner, place, fonts, found)
        return
    size, y = float(element.get("font-size").removesuffix("px")), 0.0
    font = fonts[element.get("font-weight") or "normal"]
    for line in [*element] or [element]:
        y += float(line.get("dy", 0)) if line is not element else 0
        text = "".join(line.itertext()).strip()
        width = size * font.getlength(text) / font.size
        x = -width * {"middle": 0.5, "end": 1}.get(element.get("text-anchor"), 0)
        low, high = y - 0.75 * size, y + 0.15 * size
        corners = np.array([[x, low, 1], [x + width, low, 1], [x + width, high, 1], [x, high, 1]])
        if text:
            found.append((text, size, (corners @ place.T)[:, :2]))


def overlap(one, other):
    """Return whether two rectangles overlap: no side of either separates them."""
    for sides in (one, other):
        for i in (0, 1):
            axis = sides[i + 1] - sides[i]
            first, second = one @ axis, other @ axis
            if first.max() <= second.min() or second.max() <= first.min():
                return False
    return True
