"""The table of taggers: parts of speech by word, chunks, names and semantic roles by span."""

import pandas as pd

from retable.reporting.fields import (
    BOLD,
    SPREAD,
    filled_table,
    interval_value,
    mean_value,
    published_values,
    runs_value,
    system_panels,
)
from retable.reporting.markup import Column, Table, Value

METRICS = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}


def tagging_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best on test; published ones that were not run stand among them."""
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column("accuracy", "Validation"), Column("F1", "Validation")]
    for metric, title in METRICS.items():
        columns.append(Column(title, "Test"))
        if metric in ("accuracy", "f1"):
            columns.append(Column("95 % interval", "Test"))
            columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False)]
    columns.append(Column("Note", numeric=False))

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["split"], cell["metric"]): cell for _, cell in system.iterrows()}
        values = [Value(name), runs_value(system)]
        values += [mean_value(cells.get(("validation", metric)), 2, 100) for metric in ("accuracy", "f1")]
        for metric in METRICS:
            cell = cells.get(("test", metric))
            values.append(mean_value(cell, 2, 100))
            if metric in ("accuracy", "f1"):
                values += [interval_value(cell, 1, 100), *published_values(cell, 2, 100)]
        return [*values, Value(next(filter(None, system["note"]), ""))]

    def badness(system: pd.DataFrame) -> float:
        shown = system[system["split"] == "test"].set_index("metric")
        means = shown["mean"].fillna(shown["published"])
        return -float(means["f1" if "f1" in means else "accuracy"])

    notes = [
        "In percent: of the words whose tag is right and, where tags are of spans, precision, recall and F1 of whole "
        "spans with their type, as conlleval counts them, or of semantic roles srl-eval.pl, which leaves the predicate "
        "out. The interval is a bootstrap over the sentences.",
        SPREAD,
        BOLD,
    ]
    return filled_table("tagging", "Tagging", columns, system_panels(frame, row, badness), notes)
