"""The table of readers: how right their answers are."""

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

METRICS = {"exact_match": "exact match", "f1": "F1"}


def answers_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best F1 on test; published ones that were not run stand among them."""
    columns = [Column("System", numeric=False), Column("Runs")]
    columns += [Column(title, "Validation") for title in METRICS.values()]
    for title in METRICS.values():
        columns += [Column(title, "Test"), Column("95 % interval", "Test")]
        columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False)]
    columns.append(Column("Note", numeric=False))

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["split"], cell["metric"]): cell for _, cell in system.iterrows()}
        values = [Value(name), runs_value(system)]
        values += [mean_value(cells.get(("validation", metric)), 2, 100) for metric in METRICS]
        for cell in (cells.get(("test", metric)) for metric in METRICS):
            values += [mean_value(cell, 2, 100), interval_value(cell, 1, 100), *published_values(cell, 2, 100)]
        return [*values, Value(next(filter(None, system["note"]), ""))]

    def badness(system: pd.DataFrame) -> float:
        shown = system[(system["split"] == "test") & (system["metric"] == "f1")]
        return -float(shown["mean"].fillna(shown["published"]).iloc[0])

    notes = [
        "In percent, by the rules of SQuAD v1.1: of the questions whose answer has the same words as a right one, and "
        "the mean F1 of the words of both. Test is the development set that SQuAD publishes. The interval is a "
        "bootstrap over the questions.",
        SPREAD,
        BOLD,
    ]
    return filled_table("answers", "Answers to questions", columns, system_panels(frame, row, badness), notes)
