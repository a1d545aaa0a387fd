"""What the field learnt: its language models in the order of history, and what pretraining gives.

A study may name systems with their years, under `lineage`, in that order:

    lineage: {kn5: 1998, elman: 2010, lstm: 2012}

They are measured by their test perplexity, each against the one before; other tokenizers do no harm, for a perplexity
is a word's. What pretraining gives stands under `gains`:

    gains:
    - task: sentiment          # as in metrics.json, or the corpus of a task that brings its own
      metric: accuracy         # of its test split; higher is better
      labels: 1,000            # how many a system was given, in words
      pretraining: GPT         # what is given, in words
      scratch: gpt             # two systems
      pretrained: gpt_pretrained

and under `tuned`, for the notes of both, how the systems' learning rates were found.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any

import pandas as pd

from retable.core.errors import UsageError
from retable.metrics.intervals import mean_std, percentile_interval
from retable.metrics.units import columns, share
from retable.reporting.diagnostics import PHENOMENA, phenomena_frame
from retable.reporting.fields import span
from retable.reporting.results import ORACLE, Result, Systems, by_corpus, units_of
from retable.reporting.units import UnitSums

PERPLEXITY = {"task": "", "split": "test", "metric": "perplexity_word"}
ALONE = f"{ORACLE}_alone"  # the true distribution that forgets every earlier sentence
EXCESS = {name: f"excess_{name}" for name in PHENOMENA}
COLUMNS = [
    "system", "corpus", *PERPLEXITY, "year", "mean", "std", "n", "ci_low", "ci_high", "runs",
    "before", "difference", "difference_low", "difference_high", "verdict", *EXCESS.values(), "excess_runs",
]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The runs of one system on one task: rows of `results.tidy`."""

    rows: pd.DataFrame

    @cached_property
    def units(self) -> UnitSums | None:
        return units_of(self.rows)

    @property
    def system(self) -> str:
        return self.rows["system"].iloc[0]

    @property
    def facts(self) -> dict[str, Any]:
        """The mean over seeds, std, number of runs, the mean's interval over units, and the runs' names."""
        (mean, std), names = mean_std(self.rows["value"]), (result.name for result in self.rows["result"])
        low, high = percentile_interval(self.units.replicates) if self.units else (nan, nan)
        return {
            "mean": mean, "std": std, "n": len(self.rows), "ci_low": low, "ci_high": high, "runs": " ".join(names),
        }  # fmt: skip

    def against(self, other: "Measured", verdicts: Mapping[int, str]) -> dict[str, Any]:
        """The difference to the other's mean with its interval, and its verdict by its sign, 0 where undecided.

        UsageError where both were not measured on the same units.
        """
        if self.units is None or other.units is None or self.units.text != other.units.text:
            names = " and ".join(each.rows["result"].iloc[0].name for each in (self, other))
            raise UsageError(
                f"{names} left no scores of the same units to be compared on; run them on one text, with "
                "tokenizers that read all of it"
            )
        own, its = self.rows["value"], other.rows["value"]
        low, high = percentile_interval(self.units.replicates - other.units.replicates)
        sign = int(low > 0 and own.min() > its.max()) - int(high < 0 and own.max() < its.min())
        return {
            "difference": own.mean() - its.mean(), "difference_low": low, "difference_high": high,
            "verdict": verdicts[sign],
        }  # fmt: skip


def lineage_rows(
    years: Mapping[str, int], values: pd.DataFrame, results: Sequence[Result], tuned: str = ""
) -> pd.DataFrame:
    """The rows of the lineage: of each corpus that all of it was measured on.

    `values` are the runs, as `results.tidy` has them; of the `results` come phenomena. UsageError for a system without
    a test perplexity.
    """
    if not years:
        return pd.DataFrame()
    values = values[(values[[*PERPLEXITY]] == pd.Series(PERPLEXITY)).all(axis=1) & values["sums"].notna()]
    if missing := [system for system in years if system not in set(values["system"])]:
        raise UsageError(
            f"lineage: {', '.join(missing)} has no test perplexity in this study; add it to the systems and to "
            "benchmarks.perplexity, or leave it out"
        )
    panels = {str(corpus): part for corpus, part in values.groupby("corpus") if {*years} <= {*part["system"]}}
    if not panels:
        raise UsageError("lineage: there is no corpus that all of its systems were measured on; give them one")
    phenomena = dict(by_corpus(results, "phenomena"))
    rows = []
    for corpus, part in panels.items():
        excess = _excess({name: runs for name, runs in phenomena.get(corpus, {}).items() if name in years})
        facts = {"corpus": corpus, **PERPLEXITY, "before": "", "verdict": "", "excess_runs": ""}
        rows += [facts | row | excess.get(row["system"], {}) for row in _compared(years, part)]
    return pd.DataFrame(rows, columns=COLUMNS).assign(_notes=tuned)


def _compared(years: Mapping[str, int], values: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The systems' perplexities, each against the one before, and behind them the oracles'."""
    before: Measured | None = None
    for system, year in years.items():
        runs = values[values["system"] == system].sort_values("seed")
        sums = [each._replace(statistic=share) for each in runs["sums"]]  # nats a word
        nats = Measured(runs.assign(sums=sums, value=[each.value() for each in sums]))
        row = {"system": system, "year": year, **Measured(runs).facts}
        if before:
            row |= {"before": before.system, **nats.against(before, {-1: "better", 1: "worse", 0: "undecided"})}
        before = nats
        yield row
    for _, oracle in values[values["system"] == ORACLE].groupby("seed"):
        yield {"system": ORACLE, **Measured(oracle).facts}
        units, sums = oracle["result"].iloc[0].tables["units"], oracle["sums"].iloc[0]
        if "nats_alone" in units:
            alone = sums._replace(sums=columns(units[units["split"] == "test"], ["nats_alone", "words"]))
            yield {"system": ALONE, **Measured(oracle.assign(sums=[alone], value=alone.value())).facts}


def _excess(systems: Systems) -> dict[str, dict[str, Any]]:
    """By system what it takes above the true distribution, by phenomenon, and the runs behind it."""
    if not systems:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for cell in phenomena_frame(systems).itertuples():
        found.setdefault(cell.system, {"excess_runs": cell.runs})[EXCESS[cell.phenomenon]] = cell.mean
    return found


def gains_rows(comparisons: Sequence[Mapping[str, Any]], values: pd.DataFrame, tuned: str = "") -> pd.DataFrame:
    """The rows of what pretraining gives; `values` are those of `results.tidy`.

    UsageError for a comparison that is not as above, and for a system, task or metric without numbers.
    """
    return pd.DataFrame([_gain(comparison, values) | {"_notes": tuned} for comparison in comparisons])


def _gain(comparison: Mapping[str, Any], values: pd.DataFrame) -> dict[str, Any]:
    task, metric = comparison["task"], comparison["metric"]
    values = values[(values["task"] == task) | (values["corpus"] == task)]
    values = values[(values["split"] == "test") & (values["metric"] == metric)]
    systems = [comparison[side] for side in ("scratch", "pretrained")]
    runs = [values[values["system"] == system].sort_values("seed") for system in systems]
    if missing := [system for system, part in zip(systems, runs, strict=True) if part.empty]:
        raise UsageError(
            f"gains: {', '.join(missing)} has no test {metric} of {task} in this study; add the cell that measures it, "
            "or leave the comparison out"
        )
    corpora = sorted({*pd.concat(runs)["corpus"]})
    if len(corpora) > 1:
        raise UsageError(f"gains: {task} was learnt on {', '.join(corpora)}; compare two systems of one corpus")
    optimum = values[(values["system"] == ORACLE) & (values["corpus"] == corpora[0])]["value"]
    scratch, pretrained = (Measured(part) for part in runs)
    facts = {"system": comparison["pretrained"], "corpus": corpora[0], "task": task, "split": "test", "metric": metric}
    facts |= {name: comparison[name] for name in ("labels", "pretraining")} | pretrained.facts
    facts |= {"scratch": comparison["scratch"]}
    facts |= {f"scratch_{name}": value for name, value in scratch.facts.items()}
    facts |= {"bayes_optimal": optimum.iloc[0] if len(optimum) else nan}
    facts |= pretrained.against(scratch, {1: "gains", -1: "loses", 0: "undecided"})
    return facts | {"_seeds": span([facts["scratch_n"], facts["n"]])}
