"""Figures of test perplexities with their 95 % intervals."""

import altair as alt
import pandas as pd

from retable.reporting.figures import (
    FAINT,
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
from retable.reporting.lines import Scale, significant
from retable.reporting.names import display_name
from retable.reporting.results import ORACLE

GAP = 7  # Pixels between two names of systems.
FAR = 2  # The worst system is in a note if its perplexity is more than this many times that of the second worst.
LARGE = 1000  # Perplexities from this value on are shown without decimals.
FEW = 5  # Minimum number of systems for a note about the worst system.


def perplexities(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus of test perplexity per word.

    Each system is a dot with its 95 % interval, and the oracle is a vertical line.
    """
    frame = frame[(frame["task"] == "") & (frame["split"] == "test") & (frame["metric"] == "perplexity_word")]
    frame = frame[frame["n"] > 0]
    frame = frame[frame["corpus"].isin(frame.loc[frame["system"] != ORACLE, "corpus"])]
    return {str(corpus): _dots(str(corpus), part) for corpus, part in frame.groupby("corpus")}


def _dots(corpus: str, frame: pd.DataFrame) -> Figure:
    frame = frame[["system", "mean", "ci_low", "ci_high", "published", "n"]]
    oracle, systems = frame[frame["system"] == ORACLE], frame[frame["system"] != ORACLE]
    systems = systems.sort_values("mean", ascending=False).assign(family=systems["system"].map(family))
    notes = []
    if len(systems) >= FEW and systems["mean"].iloc[0] > FAR * systems["mean"].iloc[1]:
        notes = [f"outside the axis: {display_name(systems['system'].iloc[0])}, {systems['mean'].iloc[0]:.0f}"]
        systems = systems.iloc[1:]
    shown = pd.concat([systems, oracle])[["mean", "ci_low", "ci_high", "published"]]
    low, high = shown.min(axis=None), shown.max(axis=None)
    width = WIDTH - axis_width(systems["system"])
    # share of the figure's width that is reserved for the numbers next to the dots
    room = text_width("1,000.0") / width
    x = Scale.over(
        "test perplexity per word, log scale", [low / 1.05, high * (high / low) ** (room / (1 - room))], is_log=True
    )
    right = systems["ci_high"].fillna(systems["mean"])
    # The mark of a published number slightly above the measured number would cover the text of the measured number.
    is_covered = (systems["published"] > right) & (systems["published"] < right * (x.high / x.low) ** (1.4 * room))
    labels = [f"{mean:.1f}" if mean < LARGE else f"{mean:,.0f}" for mean in systems["mean"]]
    systems = systems.assign(label=labels, end=right.mask(is_covered, systems["published"]))
    tooltip = [
        alt.Tooltip("system:N"), alt.Tooltip("mean:Q", title="perplexity", format=".2f"),
        alt.Tooltip("ci_low:Q", title="from", format=".2f"), alt.Tooltip("ci_high:Q", title="to", format=".2f"),
        alt.Tooltip("published:Q"), alt.Tooltip("n:Q", title="runs"),
    ]  # fmt: skip
    heights = systems["system"].map(lambda system: GAP + name_height([system]))
    height = int(heights.sum())
    systems = systems.assign(place=heights.cumsum() - heights / 2)
    place = alt.Y("place:Q", axis=None, scale=alt.Scale(domain=[height, 0]))
    rows = alt.Chart(significant(systems)).encode(place, tooltip=tooltip)
    families = family_colours(systems["system"])
    legend = alt.Legend() if len(families) > 1 else None
    colour = alt.Color("family:N", legend=legend).scale(domain=[*families], range=[*families.values()])
    layers = [
        rows.mark_rule(strokeWidth=3, opacity=0.45).encode(x.x("ci_low"), colour, x2="ci_high:Q"),
        rows.mark_point(shape="diamond", color="black", size=90).encode(x.x("published")),
        rows.mark_circle(size=60, opacity=1).encode(x.x("mean"), colour),
        rows.mark_text(align="left", dx=8).encode(x.x("end"), text="label:N"),
        *names(rows.encode(x=alt.value(0)), systems["system"]),
    ]
    if len(oracle):
        name = display_name(ORACLE)
        line = alt.Chart(significant(oracle.assign(label=[f"{name} {mean:.1f}" for mean in oracle["mean"]])))
        line = line.encode(x.x("mean"), tooltip=tooltip[:2])
        layers.append(line.mark_rule(color=FAINT, strokeWidth=1.5, strokeDash=[5, 3]))
        layers.append(
            line.mark_text(align="left", baseline="bottom", dx=-4, dy=-3).encode(y=alt.value(0), text="label:N")
        )
    figure = alt.layer(*layers).properties(width=width, height=height)
    parts = ["bars: 95 % intervals over test units"] * bool(systems["ci_high"].notna().any())
    parts += ["diamonds: published"] * bool(systems["published"].notna().any())
    return titled(figure, "Test perplexity", f"corpus {corpus}, lower is better", *parts, *notes)
