"""Tables of texts that language models write after the same beginnings."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from retable.reporting.fields import system_value
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

BEGINNINGS, WORDS = 3, 20  # number of beginnings per corpus, and of words per continuation


def samples_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return the table, if there are samples, with all of them as rows: a panel per corpus, a row per system and
    strategy.

    The table shows the first beginnings, and of several seeds or texts the first.
    """
    frames = []
    for result in sorted(results, key=lambda result: (result.run["corpus"], result.run["seed"] or 0, result.name)):
        if "samples" in result.tables:
            facts = {"corpus": result.run["corpus"], "system": result.run["system"], "runs": result.name}
            frames.append(result.tables["samples"].assign(**facts))
    if not frames:
        return []
    frame = pd.concat(frames)
    panels: dict[str, list[Row]] = {}
    for corpus, part in frame.drop_duplicates(["corpus", "prompt", "system", "strategy"]).groupby("corpus"):
        rows = panels.setdefault(corpus, [])
        for prompt in part["prompt"].drop_duplicates()[:BEGINNINGS]:
            continuations = part[part["prompt"] == prompt].sort_values(["system", "strategy"])
            for i, each in enumerate(continuations.itertuples()):
                begins = Value((prompt or "(nothing)") if i == 0 else "")
                system = replace(system_value(each.system), runs=(each.runs,))
                rows.append(Row([begins, system, Value(each.strategy), Value(_beginning(each.text))], apart=i == 0))
    columns = [Column(title, numeric=False) for title in ("Beginning", "System", "Strategy", "Continuation")]
    notes = [
        f"How each system goes on after the beginning, {WORDS} words at most. Of several seeds, and of several texts, "
        "the first is shown."
    ]
    return [(Table("samples", "Samples", columns, panels, notes), frame)]


def _beginning(text: str) -> str:
    """Return the first words, in one line."""
    words = " / ".join(line.strip() for line in text.split("\n") if line.strip()).split(" ")
    return " ".join(words[:WORDS]) + " …" * (len(words) > WORDS)
