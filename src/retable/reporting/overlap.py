"""Notes of tables on the share of test data that also occurs in the training data.

The stages `prepare` and `finetune` measure this share; see `retable.corpora.overlap`.
"""

from collections import defaultdict
from collections.abc import Iterable

import pandas as pd

from retable.reporting.results import OVERLAP, Result

PARTS = {
    "lines": "of lines",
    "13grams": "of 13-grams",
    "examples": "of examples",
    "contradicted": "of examples only with other answers",
}
NOTE = (
    "Share of the test data that also occurs in the training data: {}. Lines and examples are equal if their words are "
    "equal. A 13-gram is a sequence of 13 words within a line or document."
)


def with_overlap(frame: pd.DataFrame, results: Iterable[Result]) -> pd.DataFrame:
    """Add the column `_overlap`, a text with the overlap of each row's test data; "" if it was not measured."""
    values: dict[tuple[str, str, str], dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for result in results:
        for key, value in result.metrics.items():
            place, _, name = key.rpartition("/")
            if name.startswith(OVERLAP):
                task, _, split = place.rpartition("/")
                values[result.run["corpus"], task, split][name.removeprefix(OVERLAP)].add(value)
    shares = {(corpus, task): _shares(task or corpus, split, of) for (corpus, task, split), of in values.items()}
    cells = zip(frame["corpus"], frame["task"], frame["n"], strict=True)
    return frame.assign(_overlap=[shares.get((corpus, task), "") if n else "" for corpus, task, n in cells])


def overlap_note(frame: pd.DataFrame) -> list[str]:
    """Return a list with the note on the rows' overlap, or an empty list if no row has overlap."""
    shares = dict.fromkeys(filter(None, frame["_overlap"])) if "_overlap" in frame else {}
    return [NOTE.format("; ".join(shares))] if shares else []


def _shares(name: str, split: str, values: dict[str, set[float]]) -> str:
    """Describe the overlap of a task or corpus; a share is a range if systems have different training examples."""
    parts = [f"{percent(values[part])} {text}" for part, text in PARTS.items() if part in values]
    return f"{name} ({split}) {', '.join(parts)}"


def percent(shares: set[float]) -> str:
    """Return a share in percent, or the range of several shares."""
    return " to ".join(dict.fromkeys(f"{100 * share:.2f}" for share in (min(shares), max(shares)))) + " %"
