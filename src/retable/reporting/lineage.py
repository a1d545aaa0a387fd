"""Tables of language models in historical order, and of the gains from pretraining.

A study may list systems with their years under `lineage`, in the order of the years:

    lineage: {kn5: 1998, elman: 2010, lstm: 2012}

The systems are measured by test perplexity, and each is compared with the system before it. Tokenizers may differ,
because perplexities are per word. Gains from pretraining are listed under `gains`:

    gains:
    - task: sentiment          # its name in metrics.json, or the corpus of a task with a separate corpus
      metric: accuracy         # a metric of the test split; higher must be better
      labels: 1,000            # number of labels, as shown in the table
      pretraining: GPT         # the pretrained part, as shown in the table
      scratch: gpt             # the system trained from scratch
      pretrained: gpt_pretrained

`tuned` is a note below both tables on how the systems' learning rates were found.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from typing import Any

import pandas as pd

from retable.core.errors import UsageError
from retable.metrics.intervals import mean_std
from retable.metrics.units import columns
from retable.reporting.comparison import difference, facts_of, with_holm
from retable.reporting.diagnostics import PHENOMENA, phenomena_frame
from retable.reporting.fields import span
from retable.reporting.results import ORACLE, Result, Systems, by_corpus, units_of
from retable.reporting.units import UnitSums

PERPLEXITY = {"task": "", "split": "test", "metric": "perplexity_word"}
ALONE = f"{ORACLE}_alone"  # the true distribution given only the current sentence
EXCESS = {name: f"excess_{name}" for name in PHENOMENA}
COLUMNS = [
    "system", "corpus", *PERPLEXITY, "year", "mean", "std", "n", "ci_low", "ci_high", "runs",
    "before", "difference", "difference_low", "difference_high", "p", "p_holm", "better", "pairs", "blocks", "verdict",
    *EXCESS.values(), "excess_runs",
]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The runs of one system on one metric, as rows of `results.tidy`."""

    rows: pd.DataFrame

    @cached_property
    def units(self) -> UnitSums | None:
        return units_of(self.rows)

    @property
    def facts(self) -> dict[str, Any]:
        """The mean over seeds, std, number of runs, the mean's interval over test units, and the runs' names."""
        (mean, std), names = mean_std(self.rows["value"]), (result.name for result in self.rows["result"])
        low, high = self.units.interval if self.units else (nan, nan)
        return {
            "mean": mean, "std": std, "n": len(self.rows), "ci_low": low, "ci_high": high, "runs": " ".join(names),
        }  # fmt: skip


def lineage_rows(
    years: Mapping[str, int], values: pd.DataFrame, results: Sequence[Result], tuned: str = ""
) -> pd.DataFrame:
    """Return a row per system of the lineage, for each corpus on which all systems were measured.

    Args:
        years: the year of each system, in the order of the table.
        values: a frame from `results.tidy`.
        results: all results; those of the benchmark `phenomena` add the excess loss by phenomenon.
        tuned: a note on how learning rates were found.

    Raises: UsageError: a system has no test perplexity, or the systems have no corpus in common.
    """
    if not years:
        return pd.DataFrame()
    values = values[(values[[*PERPLEXITY]] == pd.Series(PERPLEXITY)).all(axis=1) & values["sums"].notna()]
    if missing := [system for system in years if system not in set(values["system"])]:
        raise UsageError(
            f"lineage: {', '.join(missing)} has no test perplexity in this study; add it to the systems and to "
            "benchmarks.perplexity, or remove it"
        )
    panels = {str(corpus): part for corpus, part in values.groupby("corpus") if {*years} <= {*part["system"]}}
    if not panels:
        raise UsageError("lineage: its systems have no corpus in common; measure all of them on one")
    phenomena = dict(by_corpus(results, "phenomena"))
    rows = []
    for corpus, part in panels.items():
        excess = _excess({name: runs for name, runs in phenomena.get(corpus, {}).items() if name in years})
        facts = {"corpus": corpus, **PERPLEXITY, "before": "", "excess_runs": ""}
        rows += [facts | row | excess.get(row["system"], {}) for row in _compared(years, part)]
    return with_holm(rows).reindex(columns=[*COLUMNS, "_p"]).assign(_notes=tuned)


def _compared(years: Mapping[str, int], values: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield a row per system, with a comparison to the system before it; the rows of oracles come last."""
    before: pd.DataFrame | None = None
    for system, year in years.items():
        runs = values[values["system"] == system].sort_values("seed")
        row = {"system": system, "year": year, **Measured(runs).facts}
        if before is not None:
            row |= {"before": before["system"].iloc[0], **facts_of(difference(runs, before))}
        before = runs
        yield row
    for _, oracle in values[values["system"] == ORACLE].groupby("seed"):
        yield {"system": ORACLE, **Measured(oracle).facts}
        units, sums = oracle["result"].iloc[0].tables["units"], oracle["sums"].iloc[0]
        if "nats_alone" in units:
            alone = sums._replace(sums=columns(units[units["split"] == "test"], ["nats_alone", "words"]))
            yield {"system": ALONE, **Measured(oracle.assign(sums=[alone], value=alone.value())).facts}


def _excess(systems: Systems) -> dict[str, dict[str, Any]]:
    """Return the excess loss over the true distribution by system and phenomenon, with the runs' names."""
    if not systems:
        return {}
    excess: dict[str, dict[str, Any]] = {}
    for cell in phenomena_frame(systems).itertuples():
        excess.setdefault(cell.system, {"excess_runs": cell.runs})[EXCESS[cell.phenomenon]] = cell.mean
    return excess


def gains_rows(comparisons: Sequence[Mapping[str, Any]], values: pd.DataFrame, tuned: str = "") -> pd.DataFrame:
    """Return a row per gain from pretraining; `values` is a frame from `results.tidy`.

    Raises: UsageError: a comparison is invalid, or a system lacks the metric.
    """
    return with_holm([_gain(comparison, values) | {"_notes": tuned} for comparison in comparisons])


def _gain(comparison: Mapping[str, Any], values: pd.DataFrame) -> dict[str, Any]:
    task, metric = comparison["task"], comparison["metric"]
    values = values[(values["task"] == task) | (values["corpus"] == task)]
    values = values[(values["split"] == "test") & (values["metric"] == metric)]
    systems = [comparison[side] for side in ("scratch", "pretrained")]
    runs = [values[values["system"] == system].sort_values("seed") for system in systems]
    if missing := [system for system, part in zip(systems, runs, strict=True) if part.empty]:
        raise UsageError(
            f"gains: {', '.join(missing)} has no test {metric} of {task} in this study; add the cell that measures it, "
            "or remove the comparison"
        )
    corpora = sorted({*pd.concat(runs)["corpus"]})
    if len(corpora) > 1:
        raise UsageError(f"gains: {task} was learnt on {', '.join(corpora)}; compare two systems trained on one corpus")
    optimum = values[(values["system"] == ORACLE) & (values["corpus"] == corpora[0])]["value"]
    scratch, pretrained = (Measured(part) for part in runs)
    facts = {"system": comparison["pretrained"], "corpus": corpora[0], "task": task, "split": "test", "metric": metric}
    facts |= {name: comparison[name] for name in ("labels", "pretraining")} | pretrained.facts
    facts |= {"scratch": comparison["scratch"]}
    facts |= {f"scratch_{name}": value for name, value in scratch.facts.items()}
    facts |= {"bayes_optimal": optimum.iloc[0] if len(optimum) else nan}
    facts |= facts_of(difference(pretrained.rows, scratch.rows))
    return facts | {"_seeds": span([facts["scratch_n"], facts["n"]])}
