"""The table of BLiMP accuracies by phenomenon."""

import pandas as pd

from retable.reporting.fields import BOLD, SPREAD, filled_table, interval_value, mean_value, number_value
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.names import display_name

OVERALL = "overall"
OVERALL_ROWS = {  # metrics over all pairs, with the labels of their rows
    "accuracy": "overall",
    "accuracy_known": "overall, of pairs of known words",
    "known": "pairs of known words",
    "equal": "pairs that the vocabulary makes equal",
}


def phenomena_table(frame: pd.DataFrame) -> Table:
    """Return the table of BLiMP: a row per phenomenon, followed by rows over all pairs (OVERALL_ROWS).

    Each system has two columns. Systems are sorted from the worst to the best; published systems come last.
    """
    measured, published = frame[frame["n"] > 0], frame[frame["n"] == 0]
    systems, others = _from_the_worst(measured), _from_the_worst(published)
    where = published.drop_duplicates("system").set_index("system")["corpus"]
    columns = [Column("Phenomenon", numeric=False), *_accuracies(systems)]
    columns += [Column(f"{display_name(system)}, {where[system]}", "published") for system in others]
    phenomena = sorted(set(measured["split"]) - {OVERALL})
    rows = [(name, "accuracy", name.replace("_", " ")) for name in phenomena]
    rows += [(OVERALL, metric, label) for metric, label in OVERALL_ROWS.items()]

    def row(part: pd.DataFrame, split: str, metric: str, label: str) -> Row:
        known = published[(published["split"] == split) & (published["metric"] == metric)]
        cells = {cell["system"]: cell for _, cell in known.iterrows()}
        values = [Value(label), *_values(part, split, metric, systems)]
        values += [number_value(cells.get(system), 1, 100) for system in others]
        return Row(values, apart=(split, metric) == (OVERALL, "accuracy"))

    panels = {corpus: [row(part, *each) for each in rows] for corpus, part in measured.groupby("corpus")}
    notes = [
        "Percent of pairs whose acceptable sentence, scored whole and with its end, has the higher probability. Ties "
        "are wrong. Two sentences also tie if the vocabulary lacks the words in which they differ. Chance is 50. The "
        "published systems were trained on other text, on far more of it, and with more words.",
        "The interval is a bootstrap over the pairs.",
        SPREAD,
        BOLD,
    ]
    return filled_table("blimp", "BLiMP", columns, panels, notes)


def _from_the_worst(frame: pd.DataFrame) -> list[str]:
    return sorted(set(frame["system"]), key=lambda system: (_mean_accuracy(frame[frame["system"] == system]), system))


def _mean_accuracy(system: pd.DataFrame) -> float:
    """Return a system's measured or published accuracy over all pairs, otherwise its mean over phenomena."""
    rows = system[system["metric"] == "accuracy"]
    rows = rows[rows["split"] == OVERALL] if (rows["split"] == OVERALL).any() else rows
    return 0.0 if rows.empty else float(rows["mean"].fillna(rows["published"]).mean())


def _accuracies(systems: list[str]) -> list[Column]:
    return [
        Column(title, display_name(system), key=system) for system in systems for title in ("accuracy", "95 % interval")
    ]


def _values(part: pd.DataFrame, split: str, metric: str, systems: list[str]) -> list[Value]:
    """Return one row of the table: the mean and the interval of each system."""
    rows = part[(part["split"] == split) & (part["metric"] == metric)]
    cells = {cell["system"]: cell for _, cell in rows.iterrows()}
    pairs = ((mean_value(cell, 1, 100), interval_value(cell, 1, 100)) for cell in map(cells.get, systems))
    return [value for pair in pairs for value in pair]
