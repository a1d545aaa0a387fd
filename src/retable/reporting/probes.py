"""What linear probes read off the layers of pretrained models: the table, and the figure by layer."""

from itertools import cycle, product

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retable.reporting.fields import SPREAD, filled_table, mean_value, runs_value
from retable.reporting.figures import COLOURS, INK, LINES, STYLE
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.pretraining import layers_of

CONTROL = "_control"


def probes_table(frame: pd.DataFrame) -> Table:
    """A row a system and layer, from the one that goes into the first up; last what the most frequent label gives."""
    kinds = _kinds(frame)
    columns = [Column("System", numeric=False), Column("Layer"), Column("Runs")]
    columns += [Column(title, _title(kind)) for kind in kinds for title in ("accuracy", "control", "selectivity")]
    panels: dict[str, list[Row]] = {}
    for corpus, part in frame.groupby("corpus"):
        rows = panels.setdefault(str(corpus), [])
        for system, own in part.groupby("system"):
            for i, (layer, cells) in enumerate(layers_of(own)):
                values = [Value(str(system)), Value(str(layer)), runs_value(own["n"])]
                for kind in kinds:
                    accuracy, control = cells.get(kind), cells.get(kind + CONTROL)
                    values += [mean_value(accuracy, 1, 100), mean_value(control, 1, 100)]
                    if accuracy is None or control is None:
                        values.append(Value(""))
                    else:
                        values.append(Value(f"{100 * (accuracy['mean'] - control['mean']):.1f}"))
                rows.append(Row(values, apart=i == 0 and bool(rows)))
        majority = part[part["split"] == "majority"].groupby("metric")["mean"].first()
        shares = [f"{100 * majority[kind]:.1f}" if kind in majority else "" for kind in kinds]
        values = [Value("most frequent label"), *[Value("")] * 2]
        rows.append(Row([*values, *(Value(text) for share in shares for text in (share, "", ""))], apart=True))
    notes = [
        "Accuracy in percent of a linear softmax on the frozen states of words in new sentences of the language. "
        "Control: the same with a random label for each word type; selectivity is the difference, and shows what is in "
        "the state beyond which word it is (Hewitt and Liang 2019). Layer 0 goes into the first layer with context.",
        "Number is that of a verb's subject, at verbs whose form goes with either. For senses each ambiguous word has "
        "a probe of its own, and no control task.",
        SPREAD,
    ]
    return filled_table("probes", "Linear probes by layer", columns, panels, notes)


def probes_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """A figure a corpus, a panel a kind of label: accuracy by layer, a line a system, a dotted one of its control task,
    and a dashed one at the share of the most frequent label."""
    probes = frame[frame["task"] == "probes"]
    return {str(corpus): _figure(str(corpus), part) for corpus, part in probes.groupby("corpus")}


def _figure(corpus: str, frame: pd.DataFrame) -> Figure:
    kinds = _kinds(frame)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 1.0 + 2.6 * len(kinds)), layout="constrained")
        panels = figure.subplots(len(kinds), 1, squeeze=False).ravel()
        for axes, kind in zip(panels, kinds, strict=True):
            for (system, own), (line, colour) in zip(frame.groupby("system"), cycle(product(LINES, COLOURS))):
                layers = layers_of(own)
                for metric, style, label in ((kind, line, str(system)), (kind + CONTROL, ":", f"{system}, control")):
                    points = [(layer, 100 * cells[metric]["mean"]) for layer, cells in layers if metric in cells]
                    axes.plot(*np.array(points).T, color=colour, lw=1.6, ls=style, marker="o", ms=4, label=label)
            majority = frame[(frame["split"] == "majority") & (frame["metric"] == kind)]["mean"]
            for share in sorted(set(majority.round(6))):
                axes.axhline(100 * share, color=INK, lw=1, ls=(0, (6, 3)), label="most frequent label")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_ylabel(f"{_title(kind)} (%)")
            axes.grid(axis="y", lw=0.5, alpha=0.25, color=INK)
        panels[0].set_title(corpus)
        panels[-1].set_xlabel("layer; 0 goes into the first with context")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9)
        return figure


def _kinds(frame: pd.DataFrame) -> list[str]:
    return sorted(set(frame.loc[frame["split"] == "majority", "metric"]))


def _title(kind: str) -> str:
    return kind.replace("_", " ")
