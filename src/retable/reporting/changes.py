"""Compare the numbers of two studies, or of one study at two commits."""

import io
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from retable.core.errors import UsageError
from retable.reporting.ablations import interval_text
from retable.reporting.fields import filled_table, system_value
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import CELL

NUMBERS = ("mean", "ci_low", "ci_high")
SAME, WITHIN, MOVED, NEW, GONE = "the same", "within the interval", "moved", "new", "gone"
ORDER = (MOVED, WITHIN, NEW, GONE)
DIGITS = 1e-5  # numbers within this relative tolerance are equal, because tables have six digits


def tables_of(folder: Path) -> dict[str, str]:
    """Return the contents of a report's CSV tables, by file name.

    Raises: UsageError: the folder has no tables.
    """
    tables = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.csv"))}
    if not tables:
        raise UsageError(f"{folder} has no tables; `retable repro` of its study makes them")
    return tables


def is_commit(name: str) -> bool:
    """Check whether git is installed and `name` is a commit, branch or tag."""
    if shutil.which("git") is None:
        return False
    try:
        _git("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        return False
    return True


def tables_at(commit: str, folder: Path) -> dict[str, str]:
    """Return the contents of a folder's CSV tables at a commit, by file name.

    Raises: UsageError: git is not installed, `commit` is unknown, or the folder has no tables there.
    """
    if shutil.which("git") is None:
        raise UsageError(f"comparing with commit {commit} needs git, which is not installed here")
    if not is_commit(commit):
        raise UsageError(f"{commit} is not a commit; write a commit, or the name of a study")
    listed = _git("ls-tree", "--name-only", commit, f"{os.path.relpath(folder)}/").splitlines()
    names = [Path(name).name for name in listed if name.endswith(".csv")]
    if not names:
        raise UsageError(f"{folder} had no tables at {commit}; write a later commit")
    return {name: _git("show", f"{commit}:./{os.path.relpath(folder)}/{name}") for name in names}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def aggregates(tables: Iterable[str]) -> pd.DataFrame:
    """Return the measured rows of all CSV tables, without duplicates.

    The columns are those of CELL and NUMBERS.
    """
    parts = []
    for text in tables:
        frame = pd.read_csv(io.StringIO(text), keep_default_na=False, dtype=dict.fromkeys(CELL, str))
        if {*CELL, "mean"} <= {*frame.columns}:
            frame = frame.reindex(columns=[*CELL, *NUMBERS])
            parts.append(frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce") for name in NUMBERS}))
    every = pd.concat(parts) if parts else pd.DataFrame(columns=[*CELL, *NUMBERS])
    return every[every["mean"].notna()].drop_duplicates(CELL, ignore_index=True)


def changes(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Return a row per number in the frames: old value, new value, and kind of change.

    A mean has moved if it is outside its earlier 95 % interval. If each frame has a single corpus, and these two
    corpora differ, rows are matched without regard to the corpus.
    """
    corpora = [{*frame["corpus"]} for frame in (before, after)]
    keys = [*CELL]
    if all(len(each) == 1 for each in corpora) and corpora[0] != corpora[1]:
        keys.remove("corpus")
    frame = before[[*keys, *NUMBERS]].merge(after[[*keys, *NUMBERS]], "outer", on=keys, suffixes=("_before", ""))
    old, new = frame["mean_before"], frame["mean"]
    low, high = frame["ci_low_before"], frame["ci_high_before"]
    cases = {GONE: new.isna(), NEW: old.isna(), SAME: np.isclose(old, new, rtol=DIGITS), WITHIN: new.between(low, high)}
    frame["change"] = np.select([*cases.values()], [*cases], default=MOVED)
    return frame.assign(difference=new - old)


def changes_table(frame: pd.DataFrame, names: Mapping[str, str]) -> Table:
    """Return the table of changed numbers, from rows of `changes`.

    names: titles of the columns for the keys `before` and `after`.
    """
    columns = [Column(title, numeric=False) for title in ("System", "Corpus", "Metric")]
    columns += [Column(names["before"]), Column("95 % interval", numeric=True), Column(names["after"])]
    columns += [Column("Difference"), Column("Change", numeric=False)]
    changed = frame[frame["change"] != SAME]
    place = changed["change"].map(ORDER.index)
    size = (changed["difference"] / changed["mean_before"]).abs()
    changed = changed.assign(place=place, size=size).sort_values(["place", "size"], ascending=[True, False])
    counts = frame["change"].value_counts()
    summary = ", ".join(f"{counts[change]} {change}" for change in (*ORDER, SAME) if change in counts)
    notes = [
        f"Of {len(frame)} numbers: {summary}. Moved: outside its earlier 95 % interval; if no interval is known, "
        "different in the first five digits."
    ]
    rows = [_row(row) for _, row in changed.iterrows()]
    return filled_table("changes", "Changed numbers", columns, {"": rows} if rows else {}, notes)


def _row(row: pd.Series) -> Row:
    metric = " ".join(part for part in (row["task"], row["split"], row["metric"]) if part)
    digits = 2 if row["metric"].startswith("perplexity") else 4

    def text(value: Any, sign: str = "") -> Value:
        return Value("" if pd.isna(value) else f"{value:{sign}.{digits}f}")

    interval = Value(interval_text(row["ci_low_before"], row["ci_high_before"], digits))
    names = [system_value(row["system"]), Value(row.get("corpus", "")), Value(metric)]
    numbers = [text(row["mean_before"]), interval, text(row["mean"]), text(row["difference"], "+")]
    return Row([*names, *numbers, Value(row["change"], bold=row["change"] == MOVED)])
