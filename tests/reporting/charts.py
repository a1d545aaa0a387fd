"""The data, marks and texts of a chart."""

import xml.etree.ElementTree as ElementTree

import pandas as pd

from retable.reporting.figures import svg_of

_MADE: dict = {}


def _once(function, figure):
    """Return `function(figure)` from the first call: altair takes up to a second to check a figure."""
    key = function, id(figure)
    if key not in _MADE:
        _MADE[key] = function(figure), figure  # the figure stays alive, so that no other gets its id
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
    """Places and heights of the points of a line of the one panel."""
    rows = table(figure, "system", "variant")
    rows = rows[(rows["system"] == system) & (rows["variant"] == (variant or rows["variant"].iloc[0]))]
    return rows["x"].tolist(), rows["y"].tolist()


def ends(figure):
    """The names at the lines' ends, of the one panel, each with the height that its line ends at."""
    rows = table(figure, "place")
    return dict(zip(rows["system"], rows["y"], strict=True))


def marks(specification, kind):
    """The parts of a specification that draw marks of a kind."""
    if isinstance(specification, list):
        return [mark for part in specification for mark in marks(part, kind)]
    if not isinstance(specification, dict):
        return []
    own = specification.get("mark")
    inner = [mark for name, part in specification.items() if name != "datasets" for mark in marks(part, kind)]
    return [specification, *inner] if isinstance(own, dict) and own.get("type") == kind else inner


def texts(figure):
    elements = ElementTree.fromstring(drawn(figure)).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in elements]
