"""Tables of what language models do without training for it: BLiMP, and questions put to them in words."""

import re

import numpy as np
import pandas as pd

from retable.reporting.fields import (
    BOLD,
    SPREAD,
    filled_table,
    interval_value,
    mean_value,
    runs_value,
    span,
    system_panels,
)
from retable.reporting.markup import Column, Row, Table, Value

OVERALL = "overall"
OVERALL_ROWS = {  # of all pairs: metric and label
    "accuracy": "overall",
    "accuracy_known": "overall, of pairs of known words",
    "known": "pairs of known words",
    "equal": "pairs that the vocabulary makes equal",
}
TITLES = {  # of the metrics of questions, with the digits and the factor that they are shown with
    "accuracy": ("accuracy", 1, 100),
    "accuracy_tokens": ("a token", 1, 100),
    "accuracy_bytes": ("a byte", 1, 100),
    "perplexity": ("perplexity", 2, 1),
}


def is_without_training(tasks: pd.Series) -> pd.Series:
    """Of which tasks: `blimp`, and `prompted_<name>`."""
    return (tasks == "blimp") | tasks.str.startswith("prompted_")


def without_training_tables(frame: pd.DataFrame) -> list[tuple[Table, pd.DataFrame]]:
    """The tables that there are numbers for, each with the aggregates that it is made of."""
    pairs, prompted = frame[frame["task"] == "blimp"], frame[frame["task"].str.startswith("prompted_")]
    tables = []
    if len(pairs):
        phenomena = pairs.loc[pairs["metric"] == "equal", "split"]
        paradigms = (pairs["n"] > 0) & ~pairs["split"].isin(phenomena)
        tables.append((_phenomena_table(pairs[~paradigms]), pairs[~paradigms]))
        tables.append((_paradigms_table(pairs[paradigms]), pairs[paradigms]))
    if len(prompted):
        tables.append((_prompted_table(prompted), prompted))
    return tables


def _phenomena_table(frame: pd.DataFrame) -> Table:
    """A row a phenomenon, below them all pairs, and how many of these the vocabulary can tell; a column a system, the
    worst first, beside them what was published of others."""
    measured, published = frame[frame["n"] > 0], frame[frame["n"] == 0]
    systems, others = _from_the_worst(measured), _from_the_worst(published)
    where = published.drop_duplicates("system").set_index("system")["corpus"]
    columns = [Column("Phenomenon", numeric=False), *_accuracies(systems)]
    columns += [Column(f"{system}, {where[system]}", "published") for system in others]
    phenomena = sorted(set(measured["split"]) - {OVERALL})
    rows = [(name, "accuracy", name.replace("_", " ")) for name in phenomena]
    rows += [(OVERALL, metric, label) for metric, label in OVERALL_ROWS.items()]

    def row(part: pd.DataFrame, split: str, metric: str, label: str) -> Row:
        known = published[(published["split"] == split) & (published["metric"] == metric)]
        cells = {cell["system"]: cell for _, cell in known.iterrows()}
        values = [Value(label), *_values(part, split, metric, systems)]
        values += [_number(cells.get(system), 1, 100) for system in others]
        return Row(values, apart=(split, metric) == (OVERALL, "accuracy"))

    panels = {corpus: [row(part, *each) for each in rows] for corpus, part in measured.groupby("corpus")}
    notes = [
        "Percent of the pairs whose acceptable sentence, as a whole and with its end, is the likelier one. A tie is "
        "wrong, and so is a pair whose sentences are equal because the vocabulary lacks the words in which they "
        "differ. Chance is 50. The published systems have read other text, far more of it, with more words.",
        "The interval is a bootstrap over the pairs.",
        SPREAD,
        BOLD,
    ]
    return filled_table("blimp", "BLiMP", columns, panels, notes)


def _paradigms_table(frame: pd.DataFrame) -> Table:
    """A row a paradigm, a column a system."""
    systems = _from_the_worst(frame)
    columns = [Column("Paradigm", numeric=False), *_accuracies(systems)]
    panels = {
        corpus: [
            Row([Value(split.replace("_", " ")), *_values(part, split, "accuracy", systems)])
            for split in sorted(set(part["split"]))
        ]
        for corpus, part in frame.groupby("corpus")
    }
    notes = ["Percent of the pairs of each paradigm, as in the table of phenomena.", SPREAD, BOLD]
    return filled_table("blimp-paradigms", "BLiMP by paradigm", columns, panels, notes)


def _prompted_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best; what was published of others stands below, by what they had read."""
    tasks = sorted(set(zip(frame["task"], frame["split"], strict=True)))
    columns = [Column("System", numeric=False), Column("Runs")]
    for task, split in tasks:
        columns.append(Column("questions", _title(task, split)))
        for title, _, _ in TITLES.values():
            columns.append(Column(title, _title(task, split)))
            columns += [Column("95 % interval", _title(task, split))] * (title == "accuracy")

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["task"], cell["split"], cell["metric"]): cell for _, cell in system.iterrows()}
        values = [Value(name), runs_value(system)]
        for key in tasks:
            count = system.loc[(system["task"] == key[0]) & (system["metric"] == "questions"), "mean"]
            values.append(Value(span(count)))
            for metric, (_, digits, scale) in TITLES.items():
                cell = cells.get((*key, metric))
                values.append(_number(cell, digits, scale))
                values += [interval_value(cell, digits, scale)] * (metric == "accuracy")
        return values

    notes = [
        "Accuracy in percent: of multiple choice by the log-probability of the answers, as it is, a token, and a byte; "
        "of last words, and of what is generated, by the greedy continuation. Perplexity is that of a last word.",
        "The interval is a bootstrap over the questions. Rows without runs are published ones.",
        SPREAD,
        BOLD,
    ]
    panels = system_panels(frame, row, badness=lambda system: -_mean_accuracy(system))
    measured = set(frame.loc[frame["n"] > 0, "corpus"])
    panels = dict(sorted(panels.items(), key=lambda item: (item[0] not in measured, item[0])))
    return filled_table("prompted", "Questions without training", columns, panels, notes)


def _from_the_worst(frame: pd.DataFrame) -> list[str]:
    return sorted(set(frame["system"]), key=lambda system: (_mean_accuracy(frame[frame["system"] == system]), system))


def _mean_accuracy(system: pd.DataFrame) -> float:
    """Measured or published, over all pairs where there is such a number."""
    rows = system[system["metric"] == "accuracy"]
    rows = rows[rows["split"] == OVERALL] if (rows["split"] == OVERALL).any() else rows
    return 0.0 if rows.empty else float(rows["mean"].fillna(rows["published"]).mean())


def _accuracies(systems: list[str]) -> list[Column]:
    return [Column(title, system) for system in systems for title in ("accuracy", "95 % interval")]


def _values(part: pd.DataFrame, split: str, metric: str, systems: list[str]) -> list[Value]:
    """Mean and interval of each system."""
    rows = part[(part["split"] == split) & (part["metric"] == metric)]
    cells = {cell["system"]: cell for _, cell in rows.iterrows()}
    pairs = ((mean_value(cell, 1, 100), interval_value(cell, 1, 100)) for cell in map(cells.get, systems))
    return [value for pair in pairs for value in pair]


def _number(cell: pd.Series | None, digits: int, scale: float) -> Value:
    """The mean, or of a system that was not run the published number."""
    if cell is None or not np.isnan(cell["mean"]):
        return mean_value(cell, digits, scale)
    return Value(f"{cell['published'] * scale:.{digits}f}", hint=cell["source"])


def _title(task: str, split: str) -> str:
    """prompted_piqa_0_generated → piqa, 0 shots, generated (validation)."""
    name = task.removeprefix("prompted_").removesuffix("_generated")
    name = re.sub(r"_(\d+)$", lambda shots: f", {shots[1]} shot" + "s" * (shots[1] != "1"), name)
    return name + ", generated" * task.endswith("_generated") + f" ({split})"
