"""Ablations: what a system loses without one of its parts, beside what was published of it.

A study may have, under `ablations`, comparisons by name:

    next_sentence:
      title: BERT without next-sentence prediction
      claim: BERT is better with next-sentence prediction than without (Devlin et al. 2019, Table 5).
      metric: acceptability/test/matthews   # as in metrics.json, without the corpus
      better: higher                        # or lower
      systems: [bert, bert_without_pairs]   # the base first, which the others are measured by
      holds: [[bert, bert_without_pairs]]   # what was published: pairs of a better and a worse system
      corpus: grammar                       # where the metric was measured on several

Where two systems were published to be the same, `alike` and `margin` stand in the place of `holds`:

      alike: [[learnt, sinusoidal]]
      margin: 0.3                           # a difference no larger is none
"""

from collections.abc import Iterator, Mapping
from math import floor, isnan, log10
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retable.errors import UsageError
from retable.metrics.intervals import difference_interval, mean_interval, mean_std
from retable.reporting.fields import SPREAD, filled_table
from retable.reporting.markup import Column, Row, Table, Value

HOLDS, FAILS, UNDECIDED = "Holds", "Does not hold", "Undecided at this scale"
METHOD = (
    "Intervals are Student's, at 95 %, over seeds: of a difference over pairs of equal seeds where both systems have "
    "the same, else Welch's. A claim holds where the interval of each difference that it names lies on its side of 0, "
    "and does not where one lies on the other; that two are alike, where the interval lies within the margin, and does "
    "not where it lies outside. Not corrected for the number of comparisons."
)


class Difference(NamedTuple):
    mean: float
    low: float  # of the 95 % interval, NaN where a system has a single run
    high: float
    paired: bool  # by seed


def ablation_tables(
    ablations: Mapping[str, Mapping[str, Any]], values: pd.DataFrame
) -> Iterator[tuple[Table, pd.DataFrame]]:
    """A table a comparison, with its rows; `values` are those of `results.tidy`.

    UsageError for a comparison that is not as above, and for a system that the metric was not measured of.
    """
    keys = values[["task", "split", "metric"]].agg(lambda row: "/".join(filter(None, row)), axis=1)
    for name, comparison in ablations.items():
        yield _table(name, comparison, _runs(name, comparison, values.assign(key=keys)))


def _runs(name: str, comparison: Mapping[str, Any], values: pd.DataFrame) -> pd.DataFrame:
    """The runs of the comparison's systems, with columns key (as `metric`), system, corpus, seed, value and result."""
    metric, systems = comparison["metric"], list(comparison["systems"])
    if "corpus" in comparison:
        values = values[values["corpus"] == comparison["corpus"]]
    values = values[values["system"].isin(systems)]
    found = values[values["key"] == metric]
    if found["corpus"].nunique() > 1:
        corpora = ", ".join(sorted(found["corpus"].unique()))
        raise UsageError(f"ablations.{name} was measured on {corpora}; write its corpus, one of them")
    if missing := [system for system in systems if system not in set(found["system"])]:
        where = f" on {comparison['corpus']}" if "corpus" in comparison else ""
        others = f", but {', '.join(sorted(set(values['key'])))}" if found.empty and not values.empty else ""
        raise UsageError(
            f"ablations.{name}: {', '.join(missing)} has no {metric}{where} in this study{others}; "
            + ("write one of these" if others else "add the cell that measures it, or leave the system out")
        )
    return found


def difference(runs: pd.DataFrame, system: str, other: str) -> Difference:
    """Of the mean of `system` less that of `other`, over runs with columns system, seed and value."""
    own, its = (runs[runs["system"] == name].set_index("seed")["value"].sort_index() for name in (system, other))
    mean = float(own.mean() - its.mean())
    if own.index.equals(its.index):
        return Difference(mean, *mean_interval(own - its), paired=True)
    return Difference(mean, *difference_interval(own, its), paired=False)


def _table(name: str, comparison: Mapping[str, Any], runs: pd.DataFrame) -> tuple[Table, pd.DataFrame]:
    base, *variants = comparison["systems"]
    groups = {system: part.sort_values("seed") for system, part in runs.groupby("system")}
    # as many decimals for all as give the largest mean four digits
    digits = max(0, 3 - floor(log10(max(abs(part["value"].mean()) for part in groups.values()) or 1)))
    columns = [Column("System", numeric=False), Column("Runs"), Column("mean", comparison["metric"])]
    columns += [Column("95 % interval", comparison["metric"])]
    columns += [Column(title, f"Difference to {base}") for title in ("mean", "95 % interval")]
    rows, records = [], []
    for system in (base, *variants):
        part = groups[system]
        mean, std = mean_std(part["value"])
        low, high = mean_interval(part["value"])
        less = difference(runs, system, base) if system != base else Difference(np.nan, np.nan, np.nan, paired=False)
        ids = tuple(result.name for result in part["result"])
        values = [Value(system), Value(str(len(part)))]
        values.append(Value(f"{mean:.{digits}f}", "" if isnan(std) else f"{std:.{digits}f}", runs=ids))
        values.append(Value(interval_text(low, high, digits)))
        values.append(Value("" if isnan(less.mean) else f"{less.mean:+.{digits}f}"))
        rows.append(Row([*values, Value(interval_text(less.low, less.high, digits, signed=True))]))
        facts = {"ablation": name, "corpus": part["corpus"].iloc[0], "metric": comparison["metric"], "system": system}
        facts |= {"n": len(part), "mean": mean, "std": std, "ci_low": low, "ci_high": high}
        facts |= {"difference": less.mean, "difference_low": less.low, "difference_high": less.high}
        records.append(facts | {"paired": less.paired, "runs": " ".join(ids)})
    verdict, sentence = judged(comparison, runs, digits)
    notes = [f"Published: {comparison['claim']}", sentence, METHOD, SPREAD]
    panels = {runs["corpus"].iloc[0]: rows}
    table = filled_table(f"ablation-{name}", f"Ablation: {comparison['title']}", columns, panels, notes)
    return table, pd.DataFrame(records).assign(verdict=verdict)


def judged(comparison: Mapping[str, Any], runs: pd.DataFrame, digits: int) -> tuple[str, str]:
    """Whether the published direction holds, and the sentence that says so."""
    sign = 1 if comparison["better"] == "higher" else -1
    verdicts, told = [], []
    for better, worse in comparison.get("holds", []):
        mean, low, high, paired = difference(runs, better, worse)
        towards, away = sorted((sign * low, sign * high))[::-1]
        verdicts.append(HOLDS if away > 0 else FAILS if towards < 0 else UNDECIDED)
        evidence = _evidence(runs, better, low, high, paired, digits)
        told.append(f"{better} less {worse} is {mean:+.{digits}f} ({evidence})")
    for one, other in comparison.get("alike", []):
        mean, low, high, paired = difference(runs, one, other)
        margin = comparison["margin"]
        within, outside = -margin < low and high < margin, low > margin or high < -margin
        verdicts.append(HOLDS if within else FAILS if outside else UNDECIDED)
        evidence = _evidence(runs, one, low, high, paired, digits)
        told.append(f"{one} differs from {other} by {mean:.{digits}f} ({evidence}), and {margin:g} counts as none")
    verdict = FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    return verdict, f"{verdict}, where {comparison['better']} is better: {'; '.join(told)}."


def _evidence(runs: pd.DataFrame, system: str, low: float, high: float, paired: bool, digits: int) -> str:
    seeds = runs.loc[runs["system"] == system, "seed"].nunique()
    how = f", over {seeds} pairs of seeds" if paired else ", by Welch"
    return f"95 % interval {interval_text(low, high, digits)}{how}" if not isnan(low) else "too few runs"


def interval_text(low: float, high: float, digits: int, signed: bool = False) -> str:
    sign = "+" * signed
    return "" if isnan(low) else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
