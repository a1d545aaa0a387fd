"""What tasks' models take from which layer of an ELMo: its scalar mix's shares s and its scale γ (Peters et al. 2018,
arXiv 1802.05365, equation 1 and figure 2). Equal data give equal bytes."""

from collections.abc import Iterable

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from retable.metrics.intervals import mean_std
from retable.reporting.fields import SPREAD, filled_table
from retable.reporting.figures import COLOURS, INK, STYLE
from retable.reporting.glue import TASKS
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

BELOW, ABOVE = COLOURS[1], COLOURS[0]
STOPS = [(0.0, (BELOW, 0.5)), (0.5, (BELOW, 0.0)), (0.5, (ABOVE, 0.0)), (1.0, (ABOVE, 0.5))]
FILL = LinearSegmentedColormap.from_list("share", STOPS)
LEAST = 0.1  # of a share's distance to an equal one, at which a square is full
CELL = 0.62, 0.34  # of inches


def mixes_frame(results: Iterable[Result]) -> pd.DataFrame:
    """A row a corpus, system, task and layer: its share and the scale, means and standard deviations over seeds. Mixes
    of a single layer, which takes all, are left out."""
    rows = []
    for result in results:
        if result.mix is not None and len(result.mix) > 1:
            run = {name: result.run[name] for name in ("corpus", "system", "task", "seed")}
            rows.append(result.mix.assign(run=result.name, **run))
    records: list[dict] = []
    if rows:
        cells = pd.concat(rows).sort_values("seed").groupby(["corpus", "system", "task", "layer"])
        for (corpus, system, task, layer), part in cells:
            record = {"corpus": corpus, "system": system, "task": task, "layer": layer}
            record["share"], record["share_std"] = mean_std(part["share"])
            record["gamma"], record["gamma_std"] = mean_std(part["gamma"])
            records.append(record | {"n": len(part), "runs": " ".join(part["run"])})
    return pd.DataFrame(
        sorted(records, key=lambda record: (record["corpus"], _place(record["task"]), record["system"]))
    )


def _place(task: str) -> tuple[int, str]:
    """GLUE's tasks first, in their order."""
    return [*TASKS, task].index(task), task


def mixes_tables(frame: pd.DataFrame) -> list[tuple[Table, pd.DataFrame]]:
    """The table, of `mixes_frame`, where it has rows: a row a task and system."""
    if frame.empty:
        return []
    layers = sorted(frame["layer"].unique())
    columns = [Column("Task", numeric=False), Column("System", numeric=False), Column("Runs")]
    columns += [*(Column(str(layer), "Share of layer") for layer in layers), Column("γ")]
    panels: dict[str, list[Row]] = {}
    for (corpus, task, system), part in frame.groupby(["corpus", "task", "system"], sort=False):
        first = part.iloc[0]
        runs = tuple(first["runs"].split(" "))
        shares = {row["layer"]: _number(row, "share", runs) for _, row in part.iterrows()}
        values = [Value(_title(task)), Value(system), Value(str(first["n"]))]
        values += [shares.get(layer, Value("")) for layer in layers]
        panels.setdefault(str(corpus), []).append(Row([*values, _number(first, "gamma", runs)]))
    notes = [
        "The softmax of the mixture's weights, which training began with equal, and the scale γ, from 1 (Peters et al. "
        "2018, equation 1). Layer 0 is the one without context.",
        SPREAD,
    ]
    return [(filled_table("scalar-mix", "ELMo's layers in the tasks' mixtures", columns, panels, notes), frame)]


def _number(row: pd.Series, name: str, runs: tuple[str, ...]) -> Value:
    spread = row[f"{name}_std"]
    return Value(f"{row[name]:.3f}", "" if np.isnan(spread) else f"{spread:.3f}", runs=runs)


def _title(task: str) -> str:
    return TASKS[task][0] if task in TASKS else task


def mixes_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus, of `mixes_frame`."""
    return {} if frame.empty else {str(corpus): _figure(part) for corpus, part in frame.groupby("corpus")}


def _figure(frame: pd.DataFrame) -> Figure:
    """A heat map: tasks down, layers across, in each square its share, behind the last one γ."""
    several = frame["system"].nunique() > 1
    names = [
        _title(task) + f", {system}" * several for task, system in zip(frame["task"], frame["system"], strict=True)
    ]
    frame = frame.assign(name=names)
    shares = frame.pivot(index="name", columns="layer", values="share").reindex(dict.fromkeys(names))
    gammas = frame.drop_duplicates("name")["gamma"]
    apart = shares.sub(1 / shares.count(axis=1), axis=0)  # from an equal share
    reach = max(LEAST, float(apart.abs().max(axis=None)))
    down, across = shares.shape
    with matplotlib.rc_context(STYLE | {"font.size": 10}):
        figure = Figure(figsize=(2.6 + CELL[0] * (across + 1), 1.2 + CELL[1] * down), layout="constrained")
        axes = figure.subplots()
        # a mesh and no image: squares that any size of paper shows sharp
        axes.pcolormesh(apart.to_numpy(), cmap=FILL, vmin=-reach, vmax=reach, edgecolors=f"{INK}30", linewidth=0.4)
        for i, (row, gamma) in enumerate(zip(shares.to_numpy(), gammas, strict=True)):
            texts = ["" if np.isnan(share) else f"{share:.2f}" for share in row]
            for j, text in enumerate([*texts, f"{gamma:.2f}"]):
                axes.text(j + 0.5, i + 0.5, text, ha="center", va="center")
        axes.set_xlim(0, across + 1)
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.set_xticks([j + 0.5 for j in range(across + 1)], [*(f"layer {layer}" for layer in shares.columns), "γ"])
        axes.set_yticks([i + 0.5 for i in range(down)], shares.index)
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        axes.set_xlabel("share of each layer: blue more than an equal one, orange less", fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return figure
