"""Tables and figures of how task models mix ELMo's layers: layer shares s and scale γ.

The figures follow Peters et al. 2018 (arXiv 1802.05365, equation 1 and figure 2). Equal data give byte-identical
figures.
"""

from collections.abc import Iterable

import altair as alt
import pandas as pd

from retable.metrics.intervals import mean_std
from retable.reporting.figures import INK, Figure, name_height, names, titled
from retable.reporting.glue import TASKS
from retable.reporting.lines import significant
from retable.reporting.names import display_name
from retable.reporting.results import Result

FILL = "#e9aa7f", "#ffffff", "#7fb8d8"  # Colours of shares below, at and above 1 / number of layers.
LEAST = 0.1  # Only shares at least this far from an equal share get the full colour.
CELL = 62, 30  # Width and height of a square, in pixels.


def mixes_frame(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per corpus, system, task and layer, with mean and std of share and scale over seeds.

    Mixes of a single layer, whose share is always 1, are omitted.
    """
    rows = []
    for result in results:
        if len(mix := result.tables.get("mix", ())) > 1:
            run = {name: result.run[name] for name in ("corpus", "system", "task", "seed")}
            rows.append(mix.assign(run=result.name, **run))
    records: list[dict] = []
    if rows:
        cells = pd.concat(rows).sort_values("seed").groupby(["corpus", "system", "task", "layer"])
        for (corpus, system, task, layer), part in cells:
            record = {"corpus": corpus, "system": system, "task": task, "layer": layer}
            record["share"], record["share_std"] = mean_std(part["share"])
            record["gamma"], record["gamma_std"] = mean_std(part["gamma"])
            records.append(record | {"n": len(part), "runs": " ".join(part["run"]), "_task": _title(task)})
    return pd.DataFrame(
        sorted(records, key=lambda record: (record["corpus"], _place(record["task"]), record["system"]))
    )


def _place(task: str) -> tuple[int, str]:
    """Return a sort key that puts GLUE's tasks first, in their usual order."""
    return [*TASKS, task].index(task), task


def _title(task: str) -> str:
    return TASKS[task][0] if task in TASKS else task.replace("_", " ")


def mixes_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus, from rows of `mixes_frame`."""
    return {} if frame.empty else {str(corpus): _figure(part) for corpus, part in frame.groupby("corpus")}


def _figure(frame: pd.DataFrame) -> Figure:
    """Draw a heat map: a row per task, a column per layer, and a last column for γ."""
    several = frame["system"].nunique() > 1
    labels = [
        _title(task) + f", {display_name(system)}" * several
        for task, system in zip(frame["task"], frame["system"], strict=True)
    ]
    frame = frame.assign(system=labels, column=[f"layer {layer}" for layer in frame["layer"]])
    apart = frame["share"] - 1 / frame.groupby("system")["layer"].transform("count")  # distance from an equal share
    reach = max(LEAST, float(apart.abs().max()))
    shares = frame.assign(apart=apart, value=frame["share"], std=frame["share_std"])
    gammas = frame.drop_duplicates("system").assign(column="γ")
    gammas = gammas.assign(value=gammas["gamma"], std=gammas["gamma_std"])
    columns = [f"layer {layer}" for layer in sorted(set(frame["layer"]))] + ["γ"]
    squares = pd.concat([shares, gammas])[["system", "column", "value", "std", "apart", "n"]]
    titles = {"system": "task", "column": "layer or scale", "value": "mean", "std": "standard deviation", "n": "runs"}
    base = alt.Chart(significant(squares)).encode(
        alt.X("column:N", sort=columns, axis=alt.Axis(orient="top", labelAngle=0)),
        alt.Y("system:N", sort=[*dict.fromkeys(labels)], axis=None),
        tooltip=[alt.Tooltip(field, title=title) for field, title in titles.items()],
    )
    fill = alt.Color("apart:Q", legend=None).scale(domain=[-reach, 0, reach], range=FILL, interpolate="rgb")
    full = base.mark_rect(stroke=INK, strokeOpacity=0.2).encode(fill)
    texts = base.mark_text().encode(alt.Text("value:Q", format=".2f"))
    rows = names(alt.Chart(gammas[["system"]]).encode(x=alt.value(0), y=base.encoding.y), labels)
    notes = "blue: more than an equal share; orange: less", "γ: scale of the mixture"
    size = {"width": alt.Step(CELL[0]), "height": alt.Step(max(CELL[1], 6 + name_height(labels)))}
    return titled(
        alt.layer(full, texts, *rows).properties(**size),
        "Share of each ELMo layer",
        f"corpus {frame['corpus'].iloc[0]}",
        *notes,
    )
