"""Verdicts: the rule that compares our numbers with published ones, column by column of a published table.

Let d = |our number − published number|, T the tolerance for d, and n the number of our seeds. `references.yaml` states
the basis of T.

- `pass`: the recipe is the same, d <= T, and the published number is distinct. A number is distinct if no other
  published number of the column is within T of it, and no other published number is nearer to our number.
- `pass (group)`: the recipe is the same and d <= T, but the number is not distinct. Two numbers are in one group if one
  is within the tolerance of the other. All rows of the group have the published recipe and d <= T, and each published
  difference between two rows of the group is reproduced within T.
- `agrees`: d <= T, but the conditions of `pass` and `pass (group)` do not hold, or T was set after the run.
- `pass, other recipe` and `agrees, other recipe`: as `pass` and `agrees`, with a recipe that differs from the published
  recipe.
- `undecidable`: d <= T, but the standard deviation over seeds requires a T wider than the 95 % interval of the test.
- `fail`: d > T for n >= 3, or for a deterministic row. Instead of `fail`, the verdict is `outside, better` if our
  number is better and the row is not deterministic.
- `open`: d > T for n < 3, if the row is not deterministic.
- `not run`: we have no run of the row.
- `in another study`: only another study has run the row; see the scoreboard (docs/scoreboard.md).
- `n/a`: the row has no tolerance.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import inf, isnan, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retable.metrics.likelihood import LIKELIHOODS
from retable.metrics.units import Best

PASS, GROUP, AGREES = "pass", "pass (group)", "agrees"
PASS_OTHER, AGREES_OTHER = "pass, other recipe", "agrees, other recipe"
FAIL, BETTER, OPEN, UNDECIDABLE = "fail", "outside, better", "open", "undecidable"
NOT_RUN, ELSEWHERE, UNJUDGED = "not run", "in another study", "n/a"
SAME_RECIPE = (PASS, GROUP, AGREES)  # verdicts that count as a reproduction
MEANINGS = {
    PASS: "within the tolerance of the published number",
    GROUP: "within the tolerance, but close to other published rows, whose differences are also reproduced",
    AGREES: "within the tolerance, but close to another published row, or the tolerance was set after the run",
    PASS_OTHER: "within the tolerance, with a recipe that differs from the published one",
    AGREES_OTHER: "within the tolerance, with a recipe that differs from the published one, but close to another "
    "published row, or the tolerance was set after the run",
    FAIL: "outside the tolerance",
    BETTER: "outside the tolerance, better than published",
    OPEN: "outside the tolerance, with too few seeds for a verdict",
    UNDECIDABLE: "within the tolerance, but the tolerance is wider than the 95 % interval of the test",
}
OUTSIDE = (FAIL, BETTER, OPEN)
SEEDS = 3  # With fewer seeds than this, the verdict on a number outside its tolerance is OPEN, not FAIL.
DETERMINISTIC = "deterministic"  # The basis of results that do not depend on a seed.
COLUMN = ("table", "corpus", "task", "split", "metric")  # Keys that identify a column of a published table.
LOWEST = (*LIKELIHOODS, "loss")  # Metrics of which the lowest value is best.
DIGITS = 9  # d is rounded to this many digits, so that 142.7 is within 141.2 ± 1.5 despite binary fractions.


class Row(NamedTuple):
    """A published number with its tolerance, and our number."""

    value: float
    tolerance: float = nan
    mean: float = nan  # Our mean over seeds.
    n: int = 0  # Our number of seeds; 0 if the row was not run.
    best: Best = "lowest"
    other_recipe: bool = False
    afterwards: bool = False
    deterministic: bool = False
    undecidable: bool = False  # the std over seeds requires a tolerance wider than the test's 95 % interval

    @property
    def agrees(self) -> bool:
        return _apart(self.mean, self.value) <= self.tolerance

    @property
    def reproduces(self) -> bool:
        """Check whether the row may count as reproduced, by itself or in a group."""
        return self.agrees and not (self.other_recipe or self.afterwards or self.undecidable)


def judged(frame: pd.DataFrame, references: pd.DataFrame) -> pd.DataFrame:
    """Add `published`, `tolerance`, `verdict`, `source` and `note` to averaged results.

    If a published number has `relative_to`, the difference between the row and the system named in `relative_to` is
    judged, and the note shows this difference. If the system in `relative_to` was not run, the number has no verdict.
    Notes also list differences between our recipe and the published one.

    Args:
        frame: a row per measured system, corpus, task, split and metric, with mean, n, ci_low and ci_high. Existing
            verdicts in `frame` are replaced.
        references: a frame from `results.read_references`.
    """
    place, cell = [*COLUMN[1:]], ["system", *COLUMN[1:]]
    near = references.merge(frame[place].drop_duplicates(), on=place)
    near = near.merge(frame[[*cell, "mean", "n", "ci_low", "ci_high"]], how="left", on=cell).fillna({"n": 0})
    ours = {tuple(record[name] for name in cell): record for record in near.to_dict("records")}
    rows = [_judged_column(column, ours) for _, column in near.groupby([*COLUMN], sort=False)]
    names = [*cell, "published", "tolerance", "verdict", "source", "note"]
    known = pd.DataFrame([row for column in rows for row in column], columns=names).astype(dict.fromkeys(cell, object))
    kept = [name for name in frame if name in cell or name not in names]
    frame = frame[kept].merge(known, how="left", on=cell)
    return frame.fillna({"verdict": UNJUDGED, "source": "", "note": ""})


def _judged_column(column: pd.DataFrame, ours: Mapping[tuple[str, ...], Mapping[str, Any]]) -> list[dict[str, Any]]:
    records = {record["system"]: record for record in column.to_dict("records")}
    rows, notes = {}, {}
    for system, record in records.items():
        rows[system], notes[system] = _row(record, ours)
    proper = [system for system, record in records.items() if not record["memory"] and not record["repeats"]]
    found = dict(zip(proper, verdicts([rows[system] for system in proper]), strict=True))
    for system, record in records.items():
        if record["repeats"]:
            others = [rows[each] for each in proper if each != record["repeats"]]
            found[system] = verdicts([rows[system], *others])[0]
    names = [*COLUMN[1:], "system", "source"]
    return [
        {name: record[name] for name in names}
        | {"published": record["value"], "tolerance": rows[system].tolerance, "note": notes[system]}
        | {"verdict": found.get(system, UNJUDGED)}
        for system, record in records.items()
    ]


def _row(record: Mapping[str, Any], ours: Mapping[tuple[str, ...], Mapping[str, Any]]) -> tuple[Row, str]:
    """Combine a published number with our number, and return the row and its note."""
    mean, n, notes = record["mean"], int(record["n"]), [record["other_recipe"]]
    allowed = tolerance_of(record, n or SEEDS)
    limit = half_width(record["value"], record["items"], record["ci_low"], record["ci_high"])
    deterministic = record["basis"] == DETERMINISTIC
    beyond = allowed > limit and not deterministic
    if beyond and isnan(record["deviation"]):
        allowed, beyond = limit, False
    if base := record["relative_to"]:
        other = ours.get((base, *(record[name] for name in COLUMN[1:])), {"mean": nan, "n": 0, "value": nan})
        ahead, published = mean - other["mean"], record["value"] - other["value"]
        mean, n = other["value"] + ahead, min(n, int(other["n"])) or n
        shown = "" if isnan(ahead) else f": ours {ahead:+.2f}, published {published:+.2f} ± {allowed:.2f}"
        notes.append(f"judged by the difference between this row and {base}{shown}")
    best: Best = "lowest" if record["metric"] in LOWEST else "highest"
    row = Row(
        record["value"],
        allowed,
        mean,
        n,
        best,
        bool(record["other_recipe"]),
        record["afterwards"],
        deterministic,
        beyond,
    )
    return row, "; ".join(filter(None, [*notes, record["note"]]))


class Reproduction(NamedTuple):
    """Measures of how much of a published table is reproduced."""

    run: float  # Share of the table's numbers that were run with the published recipe and judged.
    agreeing: float  # Share of the judged numbers whose verdict is in SAME_RECIPE.
    # Spearman's correlation of our numbers with the published ones, averaged over columns; NaN if no column has two
    # different published numbers.
    correlation: float

    @property
    def reproduced(self) -> bool:
        return self.run >= 0.8 and self.agreeing >= 0.8 and not self.correlation < 0.9


def reproduction(table: pd.DataFrame) -> Reproduction:
    """Measure how much of a published table is reproduced.

    table: a row per published number, with the columns of the references, `mean` and `verdict`.
    """
    run = table[~table["verdict"].isin((NOT_RUN, UNJUDGED)) & (table["other_recipe"] == "")]
    columns = [column for _, column in run.groupby([*COLUMN]) if column["value"].nunique() > 1]
    correlations = [column["value"].corr(column["mean"], "spearman") for column in columns]
    agreeing = run["verdict"].isin(SAME_RECIPE).mean() if len(run) else 0.0
    return Reproduction(len(run) / len(table), float(agreeing), float(np.mean(correlations)) if correlations else nan)


def tolerance_of(reference: Mapping[str, Any], n: int) -> float:
    """Return the tolerance of a row of `references.yaml` for n seeds."""
    names = ("value", "basis", "deviation", "averaged", "rounding", "given")
    return tolerance(n=n, **{name: reference[name] for name in names})


def tolerance(
    value: float,
    n: int,
    basis: str = "",
    deviation: float = nan,
    averaged: int = 1,
    rounding: float = 0.0,
    given: float = nan,
) -> float:
    """Return the tolerance of a published number by its basis, for n seeds; NaN if it is unknown.

    Args:
        value: the published number.
        n: number of our seeds.
        basis, deviation, averaged, rounding: keys that the header of `references.yaml` describes.
        given: the tolerance that the file states; if there is also a deviation, the result is at least as large as
            `given`.
    """
    if basis == DETERMINISTIC:
        return rounding + 0.001 * abs(value)
    return float(np.fmax(2 * deviation * sqrt(1 / averaged + 1 / n) + rounding, given))


def half_width(value: float, items: float, low: float, high: float) -> float:
    """Return half the width of the 95 % interval over test examples.

    If `items` is known, the interval is that of an accuracy on `items` examples, otherwise our bootstrap interval.

    items: number of test examples, NaN if unknown.
    low, high: bounds of our bootstrap interval, NaN if unknown. If `items`, `low` and `high` are unknown, the result is
        infinite.
    """
    if not isnan(items):
        return 1.96 * sqrt(value * (1 - value) / items)
    return inf if isnan(high - low) else (high - low) / 2


def verdicts(column: Sequence[Row]) -> list[str]:
    """Return the verdict of each row, for one column of a published table."""
    groups = _groups(column)
    return [_verdict(row, [*column[:place], *column[place + 1 :]], groups[place]) for place, row in enumerate(column)]


def _verdict(row: Row, others: Iterable[Row], group: Sequence[Row]) -> str:
    if row.n == 0:
        return NOT_RUN
    if isnan(row.mean) or isnan(row.tolerance):
        return UNJUDGED
    if not row.agrees:
        if row.n < SEEDS and not row.deterministic:
            return OPEN
        better = {"lowest": row.mean < row.value, "highest": row.mean > row.value}.get(row.best or "", False)
        return BETTER if better and not row.deterministic else FAIL
    if row.undecidable:
        return UNDECIDABLE
    distance = _apart(row.mean, row.value)
    distinct = not row.afterwards and all(
        _apart(other.value, row.value) > row.tolerance and _apart(other.value, row.mean) >= distance for other in others
    )
    if row.other_recipe:
        return PASS_OTHER if distinct else AGREES_OTHER
    return PASS if distinct else GROUP if len(group) > 1 and _is_reproduced(group) else AGREES


def _groups(column: Sequence[Row]) -> list[list[Row]]:
    """Return, for each row, all rows of its group.

    Two rows are connected if the published number of one is within the tolerance of the other. Rows that are connected,
    directly or through other rows, form a group.
    """
    group = [*range(len(column))]
    for (i, one), (j, other) in combinations(enumerate(column), 2):
        if _apart(one.value, other.value) <= np.fmax(one.tolerance, other.tolerance):
            group = [group[i] if each == group[j] else each for each in group]
    return [[row for row, its in zip(column, group, strict=True) if its == own] for own in group]


def _is_reproduced(group: Iterable[Row]) -> bool:
    """Check whether all rows of a group, and all differences between them, are reproduced."""
    return all(
        one.reproduces
        and other.reproduces
        and _apart(one.mean - other.mean, one.value - other.value) <= min(one.tolerance, other.tolerance)
        for one, other in combinations(group, 2)
    )


def _apart(one: float, other: float) -> float:
    return round(abs(one - other), DIGITS)
