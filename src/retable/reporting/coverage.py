"""Notes of tables on the share of a task's words that have a pretrained vector.

The stage `finetune` counts these words; see `retable.data.word_vectors`.
"""

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from retable.reporting.names import display_name
from retable.reporting.overlap import percent
from retable.reporting.results import Result

NOTE = "Share of the words that have a vector in the file of pretrained vectors: {}."


def with_coverage(frame: pd.DataFrame, results: Iterable[Result]) -> pd.DataFrame:
    """Add the column `_coverage`: a row's task, system, and shares of words that have a vector; "" if not counted."""
    values: dict[tuple[str, str, str], dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    names = {}
    for result in results:
        counted = result.run.get("coverage", {})
        for task in {key.split("/")[0] for key in result.metrics} if counted else ():
            row = result.run["system"], result.run["corpus"], task
            names[row] = result.run["task"], display_name(result.run["system"])
            for unit in ("tokens", "types"):
                split = "test" if "test" in counted[unit] else "validation"
                if split in counted[unit]:
                    values[row][f"{split} {unit}"].add(counted[unit][split])
    texts = {
        row: (*names[row], ", ".join(f"{percent(shares)} of {what}" for what, shares in of_row.items()))
        for row, of_row in values.items()
    }
    rows = zip(frame["system"], frame["corpus"], frame["task"], frame["n"], strict=True)
    return frame.assign(
        _coverage=[texts.get((system, corpus, task), "") if n else "" for system, corpus, task, n in rows]
    )


def coverage_note(frame: pd.DataFrame) -> list[str]:
    """Return a list with the note on the rows' coverage, or an empty list if no row has a coverage.

    The note names the systems of a task only if their shares differ.
    """
    by_task: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for task, system, shares in dict.fromkeys(filter(None, frame["_coverage"])) if "_coverage" in frame else ():
        by_task[task][shares].append(system)
    texts = [
        f"{task}: {shares}" if len(of_task) == 1 else f"{' and '.join(systems)} on {task}: {shares}"
        for task, of_task in by_task.items()
        for shares, systems in of_task.items()
    ]
    return [NOTE.format("; ".join(texts))] if texts else []
