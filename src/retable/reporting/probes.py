"""The table and figures of linear probes on the layers of pretrained models."""

import pandas as pd

from retable.reporting.fields import SPREAD, filled_table, mean_value, runs_value, system_value
from retable.reporting.figures import Figure, titled
from retable.reporting.lines import DOTTED, Look, Scale, line_panel, stacked
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.pretraining import layers_of, layers_scale

CONTROL = "_control"


def probes_table(frame: pd.DataFrame) -> Table:
    """Return the table of probe accuracy: a row per system and layer.

    Layer 0 is the input of the first layer with context. The last row is the accuracy of the most frequent label.
    """
    kinds = _kinds(frame)
    columns = [Column("System", numeric=False), Column("Layer"), Column("Runs")]
    columns += [Column(title, _title(kind)) for kind in kinds for title in ("accuracy", "control", "selectivity")]
    panels: dict[str, list[Row]] = {}
    for corpus, part in frame.groupby("corpus"):
        rows = panels.setdefault(str(corpus), [])
        for system, own in part.groupby("system"):
            for i, (layer, cells) in enumerate(layers_of(own)):
                values = [system_value(str(system)), Value(str(layer)), runs_value(own["n"])]
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
        "Accuracy (%) of a linear softmax classifier on the frozen states of words in new sentences of the language. "
        "Control: the accuracy of such a classifier if each word type has a random label. Selectivity: the accuracy "
        "minus the control; it shows what the state encodes besides the word's identity (Hewitt and Liang 2019). "
        "Layer 0 is the input of the first layer with context.",
        "Number: the probe predicts if the subject of a verb is singular or plural, at verbs whose form fits both. "
        "Senses: the probe predicts the sense of an ambiguous word. Each word has a separate probe, without a control.",
        SPREAD,
    ]
    return filled_table("probes", "Linear probes by layer", columns, panels, notes)


def probes_figures(frame: pd.DataFrame) -> dict[str, Figure]:
    """Return a figure per corpus of probe accuracy by layer, with a panel per kind of label.

    Each system has a solid line for its probe and a dotted line for the control task. The dashed line is the accuracy
    of the most frequent label.
    """
    probes = frame[frame["task"] == "probes"]
    return {str(corpus): _figure(str(corpus), part) for corpus, part in probes.groupby("corpus")}


def _figure(corpus: str, frame: pd.DataFrame) -> Figure:
    panels = [_panel(frame, kind) for kind in _kinds(frame)]
    return titled(
        stacked(panels), "Accuracy of linear probes by layer", f"corpus {corpus}", "squares, dotted: the control task"
    )


def _panel(frame: pd.DataFrame, kind: str) -> Figure:
    looks = {"probe": Look(is_marked=True), "control": Look(DOTTED, is_marked=True, shape="square")}
    metrics = {"probe": kind, "control": kind + CONTROL}
    rows = [
        (system, variant, layer, 100 * cells[metric]["mean"])
        for system, own in frame.groupby("system")
        for variant, metric in metrics.items()
        for layer, cells in layers_of(own)
        if metric in cells
    ]
    lines = pd.DataFrame(rows, columns=["system", "variant", "x", "y"])
    majority = frame[(frame["split"] == "majority") & (frame["metric"] == kind)]["mean"]
    bounds = [("Most frequent label", 100 * share) for share in sorted(set(majority.round(6)))]
    x = layers_scale("layer (0: without context)", lines["x"])
    y = Scale.over(f"{_title(kind)}, %", lines["y"], [value for _, value in bounds])
    return line_panel(lines, x, y, looks, systems=set(frame["system"]), bounds=bounds, height=190, name=kind)


def _kinds(frame: pd.DataFrame) -> list[str]:
    return sorted(set(frame.loc[frame["split"] == "majority", "metric"]))


def _title(kind: str) -> str:
    return kind.replace("_", " ")
