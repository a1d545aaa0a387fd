"""The table of coreference: how right the clusters of mentions are."""

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

AVERAGE = "average_f1"
METRICS = {"muc": "MUC", "b_cubed": "B³", "ceaf": "CEAF"}


def coreference_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best average on test; published ones that were not run stand among them."""
    columns = [Column("System", numeric=False), Column("Runs"), Column("average F1", "Validation")]
    columns += [Column(f"{title} F1", "Test") for title in METRICS.values()]
    columns += [Column("average F1", "Test"), Column("95 % interval", "Test")]
    columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False), Column("Note", numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["split"], cell["metric"]): cell for _, cell in system.iterrows()}
        average = cells.get(("test", AVERAGE))
        values = [Value(name), runs_value(system), mean_value(cells.get(("validation", AVERAGE)), 2, 100)]
        values += [mean_value(cells.get(("test", f"{metric}_f1")), 2, 100) for metric in METRICS]
        values += [mean_value(average, 2, 100), interval_value(average, 1, 100), *published_values(average, 2, 100)]
        return [*values, Value(next(filter(None, system["note"]), ""))]

    def badness(system: pd.DataFrame) -> float:
        shown = system[(system["split"] == "test") & (system["metric"] == AVERAGE)]
        return -float(shown["mean"].fillna(shown["published"]).iloc[0])

    notes = [
        "In percent: F1 of MUC, B³ and CEAF with φ4, as CoNLL-2012 counts them over all documents, and the mean of the "
        "three. The interval is a bootstrap over the documents.",
        SPREAD,
        BOLD,
    ]
    return filled_table("coreference", "Coreference", columns, system_panels(frame, row, badness), notes)
