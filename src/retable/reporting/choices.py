"""The table of multiple choice: how often the right ending is chosen."""

import pandas as pd

from retable.reporting.fields import (
    BOLD,
    SPREAD,
    filled_table,
    interval_value,
    mean_value,
    published_values,
    runs_value,
    system_label,
    system_panels,
)
from retable.reporting.markup import Column, Table, Value


def choices_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best on test, the best answers last; published ones that were not run stand
    among them."""
    columns = [Column("System", numeric=False), Column("Runs"), Column("accuracy", "Validation")]
    columns += [Column("accuracy", "Test"), Column("95 % interval", "Test")]
    columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False), Column("Note", numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {cell["split"]: cell for _, cell in system.iterrows()}
        test = cells.get("test")
        values = [Value(system_label(name, "Bayes-optimal")), runs_value(system)]
        values += [mean_value(cells.get("validation"), 1, 100), mean_value(test, 1, 100)]
        values += [interval_value(test, 1, 100), *published_values(test, 1, 100)]
        return [*values, Value(next(filter(None, system["note"]), ""))]

    def badness(system: pd.DataFrame) -> float:
        shown = system[system["split"] == "test"]
        return -float(shown["mean"].fillna(shown["published"]).iloc[0])

    notes = [
        "In percent, of the examples whose right ending is chosen. The interval is a bootstrap over the examples.",
        SPREAD,
        BOLD,
    ]
    return filled_table("choices", "Multiple choice", columns, system_panels(frame, row, badness), notes)
