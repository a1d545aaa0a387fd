"""Tables of the texts that language models generate from the same prompts."""

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from retable.reporting.fields import system_value
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import Result

BEGINNINGS, WORDS = 3, 20  # maximum number of prompts per corpus, and of words per generated text


def samples_tables(results: Iterable[Result]) -> list[tuple[Table, pd.DataFrame]]:
    """Return the table of generated texts with its rows, or an empty list if no text was generated.

    The table has a panel per corpus, and for each prompt a row per system and strategy. The table shows only the first
    prompts, and only the first of several seeds or texts. The returned rows contain all texts.
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
                begins = Value((prompt or "(empty)") if i == 0 else "")
                system = replace(system_value(each.system), runs=(each.runs,))
                rows.append(Row([begins, system, Value(each.strategy), Value(_beginning(each.text))], apart=i == 0))
    columns = [Column(title, numeric=False) for title in ("Prompt", "System", "Strategy", "Continuation")]
    notes = [f"Continuations of a prompt, at most {WORDS} words. Only the first of several seeds or texts is shown."]
    return [(Table("samples", "Samples", columns, panels, notes), frame)]


def _beginning(text: str) -> str:
    """Return the first WORDS words of a text, in one line."""
    words = " / ".join(line.strip() for line in text.split("\n") if line.strip()).split(" ")
    return " ".join(words[:WORDS]) + " …" * (len(words) > WORDS)
