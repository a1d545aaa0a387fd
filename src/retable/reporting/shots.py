"""Few-shot curves: accuracy by number of examples (Brown et al. 2020, figure 1.2)."""

import pandas as pd

from retable.reporting.figures import Figure, titled
from retable.reporting.lines import Look, Scale, line_panel

PROMPTED = r"^prompted_(?P<name>.+?)_(?P<shots>\d+)$"  # Names of prompted tasks, answered by likelihood.
APART = 0.01  # Horizontal shift between two systems, as a share of the axis.


def shots_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure of accuracy per corpus and kind of question: a line per system, with intervals.

    A kind of question has a figure only if several numbers of examples were tried. Intervals are over questions.

    frame: averaged results, from `results.aggregate`.
    """
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
    # Systems are shifted sideways, because models at chance would cover each other.
    places = frame["system"].rank(method="dense") - (frame["system"].nunique() + 1) / 2
    x = frame["shots"] + APART * shots[-1] * places
    lines = frame[["system"]].assign(x=x, variant="", **scaled).sort_values(["system", "x"])
    x = Scale("examples before the question", -0.03 * shots[-1], 1.03 * shots[-1], ticks=shots, format="d")
    y = Scale.over(f"{first['split']} accuracy, %", lines[["y", "low", "high"]])
    figure = line_panel(lines, x, y, {"": Look(is_marked=True)}, has_bars=True)
    subtitle = "bars: 95 % intervals over the questions"
    return titled(figure, "Accuracy by examples in the prompt", f"{first['name']}, corpus {first['corpus']}", subtitle)
