"""Ablations: how a score changes without a part of a system, next to the published claim.

A `study.yaml` may define comparisons under `ablations`, each with a name:

    next_sentence:
      title: BERT without next-sentence prediction
      claim: BERT is better with next-sentence prediction than without (Devlin et al. 2019, Table 5).
      metric: acceptability/test/matthews   # the name in metrics.json, which has no corpus
      better: higher                        # or lower
      systems: [bert, bert_without_pairs] # the first system is compared with each other system
      holds: [[bert, bert_without_pairs]]   # the claim: pairs of a better and a worse system
      corpus: grammar                       # needed if the metric was measured on several corpora

If the claim is that two systems score equally, write `alike` and `margin` instead of `holds`:

      alike: [[learnt, sinusoidal]]
      margin: 0.3                           # largest difference that counts as equal
"""

from collections.abc import Iterator, Mapping
from math import floor, isnan, log10
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from retable.core.errors import UsageError
from retable.metrics.intervals import difference_interval, mean_interval, mean_std
from retable.reporting.names import display_name

HOLDS, FAILS, UNDECIDED = "Holds", "Does not hold", "Undecided at this scale"


class Difference(NamedTuple):
    mean: float
    low: float  # lower end of the 95 % interval; NaN if a system has only one run
    high: float
    paired: bool  # whether runs with equal seeds were paired

    @property
    def facts(self) -> dict[str, Any]:
        names = ("difference", "difference_low", "difference_high", "paired")
        return dict(zip(names, self, strict=True))


def over_seeds(runs: pd.DataFrame) -> dict[str, Any]:
    """Return a system's number of runs, mean, std, the mean's 95 % interval over seeds, and the runs' names."""
    (mean, std), (low, high) = mean_std(runs["value"]), mean_interval(runs["value"])
    names = " ".join(result.name for result in runs["result"])
    return {"n": len(runs), "mean": mean, "std": std, "ci_low": low, "ci_high": high, "runs": names}


def ablation_rows(ablations: Mapping[str, Mapping[str, Any]], values: pd.DataFrame) -> pd.DataFrame:
    """Return one row per comparison and system; `values` is a frame from `results.tidy`.

    Raises: UsageError: a comparison is invalid, or a system lacks the metric.
    """
    if not ablations:
        return pd.DataFrame()
    keys = values[["task", "split", "metric"]].agg(lambda row: "/".join(filter(None, row)), axis=1)
    values = values.assign(key=keys)
    return pd.DataFrame(row for item in ablations.items() for row in _rows(*item, _runs(*item, values)))


def _runs(name: str, comparison: Mapping[str, Any], values: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of a comparison, with the columns key, system, corpus, seed, value and result.

    `key` contains the name of the metric in `metrics.json`.
    """
    metric, systems = comparison["metric"], list(comparison["systems"])
    if "corpus" in comparison:
        values = values[values["corpus"] == comparison["corpus"]]
    values = values[values["system"].isin(systems)]
    runs = values[values["key"] == metric]
    if runs["corpus"].nunique() > 1:
        corpora = ", ".join(sorted(runs["corpus"].unique()))
        raise UsageError(f"ablations.{name} was measured on {corpora}; set corpus to one of these corpora")
    if missing := [system for system in systems if system not in set(runs["system"])]:
        where = f" on {comparison['corpus']}" if "corpus" in comparison else ""
        others = f", but {', '.join(sorted(set(values['key'])))}" if runs.empty and not values.empty else ""
        raise UsageError(
            f"ablations.{name}: {', '.join(missing)} has no {metric}{where} in this study{others}; "
            + ("set metric to one of these" if others else "add the cell that measures it, or remove the system")
        )
    return runs


def difference(runs: pd.DataFrame, system: str, other: str) -> Difference:
    """Return the mean of `system` minus the mean of `other`; `runs` has the columns system, seed and value."""
    own, others = (runs[runs["system"] == name].set_index("seed")["value"].sort_index() for name in (system, other))
    mean = float(own.mean() - others.mean())
    if own.index.equals(others.index):
        return Difference(mean, *mean_interval(own - others), paired=True)
    return Difference(mean, *difference_interval(own, others), paired=False)


def _rows(name: str, comparison: Mapping[str, Any], runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    base, metric = comparison["systems"][0], comparison["metric"]
    groups = {system: part.sort_values("seed") for system, part in runs.groupby("system")}
    # All rows are shown with the same number of decimals, chosen so that the largest mean has four digits.
    digits = max(0, 3 - floor(log10(max(abs(part["value"].mean()) for part in groups.values()) or 1)))
    verdict, sentence = judged(comparison, runs, digits)
    shown = {"_title": comparison["title"], "_base": display_name(base), "_digits": digits}
    shown["_notes"] = f"Published: {comparison['claim']}\n{sentence}"
    for system in comparison["systems"]:
        own = over_seeds(groups[system])
        names = {"runs": own.pop("runs"), "verdict": verdict}
        less = difference(runs, system, base) if system != base else Difference(np.nan, np.nan, np.nan, paired=False)
        facts = {"ablation": name, "corpus": runs["corpus"].iloc[0], "metric": metric, "system": system}
        yield facts | own | less.facts | names | shown


def judged(comparison: Mapping[str, Any], runs: pd.DataFrame, digits: int) -> tuple[str, str]:
    """Return the verdict on the published claim, and a sentence with the evidence for it."""
    sign = 1 if comparison["better"] == "higher" else -1
    verdicts, evidences = [], []
    for better, worse in comparison.get("holds", []):
        mean, low, high, paired = difference(runs, better, worse)
        towards, away = sorted((sign * low, sign * high))[::-1]
        verdicts.append(HOLDS if away > 0 else FAILS if towards < 0 else UNDECIDED)
        evidence = _evidence(runs, better, low, high, paired, digits)
        evidences.append(f"{display_name(better)} minus {display_name(worse)} is {mean:+.{digits}f} ({evidence})")
    for one, other in comparison.get("alike", []):
        mean, low, high, paired = difference(runs, one, other)
        margin = comparison["margin"]
        within, outside = -margin < low and high < margin, low > margin or high < -margin
        verdicts.append(HOLDS if within else FAILS if outside else UNDECIDED)
        evidence = _evidence(runs, one, low, high, paired, digits)
        names = f"{display_name(one)} differs from {display_name(other)}"
        evidences.append(f"{names} by {mean:.{digits}f} ({evidence}); a difference of up to {margin:g} counts as equal")
    verdict = FAILS if FAILS in verdicts else UNDECIDED if UNDECIDED in verdicts else HOLDS
    return verdict, f"{verdict} ({comparison['better']} is better): {'; '.join(evidences)}."


def _evidence(runs: pd.DataFrame, system: str, low: float, high: float, paired: bool, digits: int) -> str:
    seeds = runs.loc[runs["system"] == system, "seed"].nunique()
    how = f", over {seeds} pairs of seeds" if paired else ", by Welch's method"
    return f"95 % interval {interval_text(low, high, digits)}{how}" if not isnan(low) else "too few runs"


def interval_text(low: float, high: float, digits: int, signed: bool = False) -> str:
    """Return an interval as text, such as "0.12 to 0.34"; "" if `low` is NaN.

    Args:
        digits: number of digits after the decimal point.
        signed: write a plus sign before numbers that are not negative, as in "-0.12 to +0.34".
    """
    sign = "+" * signed
    return "" if isnan(low) else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"
