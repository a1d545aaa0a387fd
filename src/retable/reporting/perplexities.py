"""Figures of test perplexities with their intervals."""

import altair as alt
import pandas as pd

from retable.reporting.figures import COLOURS, INK, WIDTH, Figure, axis_width
from retable.reporting.lines import Scale, significant
from retable.reporting.results import ORACLE

ROW = 22  # height of a row, in pixels


def perplexities(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus of test perplexity per word: a dot per system with its 95 % interval, the oracle as a
    line.
    """
    frame = frame[(frame["task"] == "") & (frame["split"] == "test") & (frame["metric"] == "perplexity_word")]
    frame = frame[frame["n"] > 0]
    frame = frame[frame["corpus"].isin(frame.loc[frame["system"] != ORACLE, "corpus"])]
    return {str(corpus): _dots(str(corpus), part) for corpus, part in frame.groupby("corpus")}


def _dots(corpus: str, frame: pd.DataFrame) -> Figure:
    frame = frame[["system", "mean", "ci_low", "ci_high", "published", "n"]]
    shown = frame[["mean", "ci_low", "ci_high", "published"]]
    low, high = shown.min(axis=None), shown.max(axis=None)
    published = "; diamonds: published" if frame["published"].notna().any() else ""
    x = Scale.over(f"test perplexity per word, log scale, 95 % intervals{published}", [low / 1.1, high], is_log=True)
    systems = frame[frame["system"] != ORACLE].sort_values("mean", ascending=False)
    high = systems["ci_high"].fillna(systems["mean"])
    # a published number slightly above the measured one would cover its text
    is_covered = (systems["published"] > high) & (systems["published"] < 1.2 * high)
    systems = systems.assign(end=high.mask(is_covered, systems["published"]))
    tooltip = [
        alt.Tooltip("system:N"), alt.Tooltip("mean:Q", title="perplexity", format=".2f"),
        alt.Tooltip("ci_low:Q", title="from", format=".2f"), alt.Tooltip("ci_high:Q", title="to", format=".2f"),
        alt.Tooltip("published:Q"), alt.Tooltip("n:Q", title="runs"),
    ]  # fmt: skip
    rows = alt.Chart(significant(systems)).encode(alt.Y("system:N", sort=None), tooltip=tooltip)
    layers = [
        rows.mark_rule(color=COLOURS[0], strokeWidth=3, opacity=0.45).encode(x.x("ci_low"), x2="ci_high:Q"),
        rows.mark_point(shape="diamond", color=INK, size=90).encode(x.x("published")),
        rows.mark_circle(color=COLOURS[0], size=60, opacity=1).encode(x.x("mean")),
        rows.mark_text(align="left", dx=8).encode(x.x("end"), text=alt.Text("mean:Q", format=".1f")),
    ]
    oracle = frame[frame["system"] == ORACLE]
    if len(oracle):
        line = alt.Chart(significant(oracle.assign(label=[f"oracle {mean:.1f}" for mean in oracle["mean"]])))
        line = line.encode(x.x("mean"), tooltip=tooltip[:2])
        layers.append(line.mark_rule(color=COLOURS[1], strokeWidth=1.4, strokeDash=[5, 3]))
        layers.append(line.mark_text(color=COLOURS[1], baseline="bottom", dy=-3).encode(y=alt.value(0), text="label:N"))
    size = {"width": WIDTH - axis_width(systems["system"]), "height": ROW * len(systems)}
    return alt.layer(*layers).properties(title=corpus, **size)
