"""The table of translations: BLEU and chrF of each test set, with sacrebleu's signatures."""

from collections.abc import Iterable

import pandas as pd

from retable.reporting.fields import SPREAD, filled_table, mean_value, published_values, runs_value, system_panels
from retable.reporting.markup import Column, Table, Value
from retable.reporting.results import Result

TITLES = {"bleu": "BLEU", "chrf": "chrF"}


def is_translation(tasks: pd.Series) -> pd.Series:
    """Of which tasks, one a test set: `translation`, and `translation_2017` for further ones."""
    return tasks.str.startswith("translation")


def translation_tables(frame: pd.DataFrame, results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """The table, where there are translations, with the aggregates that it is made of: a row a system, from the worst
    to the best, and a note for each signature."""
    frame = frame[is_translation(frame["task"])]
    if frame.empty:
        return []
    tasks = sorted(frame["task"].unique())
    columns = [Column("System", numeric=False), Column("Decoding", numeric=False), Column("Runs")]
    for task in tasks:
        for title in TITLES.values():
            columns += [Column(title, _test_set(task)), Column("published", _test_set(task))]
            columns.append(Column("verdict", _test_set(task), numeric=False))
    columns.append(Column("Note", numeric=False))

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        cells = {(cell["task"], cell["metric"]): cell for _, cell in system.iterrows()}
        values = [Value(name), Value(max(system["protocol"])), runs_value(system)]
        for task in tasks:
            for metric in TITLES:
                cell = cells.get((task, metric))
                values += [mean_value(cell, 2), *published_values(cell, 2)]
        return [*values, Value(_notes(system[system["metric"] == "bleu"], tasks))]

    def badness(system: pd.DataFrame) -> float:
        shown = system["mean"].fillna(system["published"])
        return -shown[(system["task"] == tasks[0]) & (system["metric"] == "bleu")].sum()

    signatures: dict[str, dict[str, None]] = {}
    for result in results:
        for metric, signature in result.run.get("signatures", {}).items():
            signatures.setdefault(metric, {})[signature] = None
    notes = [
        "BLEU and chrF of whole test sets, of 100, with one reference.",
        *(f"{TITLES[metric]}: {'; '.join(sorted(signatures[metric]))}." for metric in TITLES if metric in signatures),
        SPREAD,
    ]
    table = filled_table("translation", "Translation", columns, system_panels(frame, row, badness), notes)
    joined = {metric: " ".join(sorted(found)) for metric, found in signatures.items()}
    return [(table, frame.assign(signature=frame["metric"].map(joined)))]


def _notes(cells: pd.DataFrame, tasks: list[str]) -> str:
    """What the rows of a system have to say, with the test sets that it is said of where it isn't all."""
    sets: dict[str, list[str]] = {}
    for cell in cells.itertuples():
        for note in filter(None, cell.note.split("; ")):
            sets.setdefault(note, []).append(_test_set(cell.task))
    told = (note if len(of) == len(tasks) else f"{', '.join(of)}: {note}" for note, of in sets.items())
    return "; ".join(told)


def _test_set(task: str) -> str:
    return "test" + task.removeprefix("translation").replace("_", " ")
