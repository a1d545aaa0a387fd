"""Few-shot curves: how often a prompted model is right, by the number of examples that stand before the question (Brown
et al. 2020, figure 1.2)."""

import pandas as pd

from retable.reporting.figures import Figure
from retable.reporting.lines import Look, Scale, line_panel

PROMPTED = r"^prompted_(?P<name>.+?)_(?P<shots>\d+)$"  # of what was answered by likelihood
APART = 0.01  # of the axis, between two systems


def shots_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus and kind of question that was asked with several numbers of examples: a line a system, with
    intervals over questions. `frame` are the aggregates."""
    frame = frame[(frame["metric"] == "accuracy") & (frame["n"] > 0)]
    frame = frame.join(frame["task"].str.extract(PROMPTED)).dropna(subset="shots").astype({"shots": int})
    figures = {}
    for (corpus, name), of_all in frame.groupby(["corpus", "name"]):
        several = of_all["split"].nunique() > 1
        for split, part in of_all.groupby("split"):
            if part["shots"].nunique() > 1:
                figures[f"{corpus}-{name}" + f"-{split}" * several] = _figure(part)
    return figures


def _figure(frame: pd.DataFrame) -> Figure:
    first, shots = frame.iloc[0], sorted({*frame["shots"]})
    scaled = {name: 100 * frame[column] for name, column in (("y", "mean"), ("low", "ci_low"), ("high", "ci_high"))}
    # Beside one another, for models at chance lie on one line.
    places = frame["system"].rank(method="dense") - (frame["system"].nunique() + 1) / 2
    x = frame["shots"] + APART * shots[-1] * places
    lines = frame[["system"]].assign(x=x, variant="", **scaled).sort_values(["system", "x"])
    x = Scale("examples before the question", -0.03 * shots[-1], 1.03 * shots[-1], ticks=shots, format="d")
    y = Scale.over(f"{first['split']} accuracy (%)", lines[["y", "low", "high"]])
    figure = line_panel(lines, x, y, {"": Look(is_marked=True)}, has_bars=True)
    subtitle = "bars: 95 % intervals over the questions"
    return figure.properties(title={"text": f"{first['corpus']}: {first['name']}", "subtitle": subtitle})
