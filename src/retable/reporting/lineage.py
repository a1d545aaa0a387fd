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
from math import isnan, nan
from typing import Any

import pandas as pd

from retable.errors import UsageError
from retable.metrics.intervals import mean_std, percentile_interval
from retable.metrics.units import columns, share
from retable.reporting.ablations import interval_text
from retable.reporting.diagnostics import PHENOMENA, Systems, by_corpus, phenomena_frame
from retable.reporting.elmo import METRICS
from retable.reporting.fields import SPREAD, filled_table, span
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import ORACLE, Result, units_of
from retable.reporting.units import UnitSums

PERPLEXITY = {"task": "", "split": "test", "metric": "perplexity_word"}
ALONE = f"{ORACLE}_alone"  # the true distribution that forgets every earlier sentence
ORACLES = {ORACLE: "true distribution (oracle)", ALONE: "true distribution, a sentence alone (oracle)"}
ORACLE_NOTES = {
    ORACLE: "Oracle: the language's own probabilities, which no model can better.",
    ALONE: "A sentence alone: those of each sentence as if nothing before it were known. It is nearly the best that a "
    "model can do which begins anew with each.",
}
EXCESS = {name: f"excess_{name}" for name in PHENOMENA}
COLUMNS = [
    "system", "corpus", *PERPLEXITY, "year", "mean", "std", "n", "ci_low", "ci_high", "runs",
    "before", "difference", "difference_low", "difference_high", "verdict", *EXCESS.values(), "excess_runs",
]  # fmt: skip
EXCEEDED = (
    "Excess: nats a token above those of the true distribution, by what decides a token: the words beside it, an "
    "agreement, what is still open, or an earlier mention; its intervals are in the table of phenomena."
)
DECIDED = (
    "where the interval of the difference, a paired bootstrap over the same {units} of the difference of means over "
    "seeds, lies on one side of 0 and every run of one system is on that side of every run of the other; else it is "
    "undecided. Not corrected for the number of comparisons."
)


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
            raise UsageError(f"{names} left no scores of the same units to be compared on; run them again on one text")
        own, its = self.rows["value"], other.rows["value"]
        low, high = percentile_interval(self.units.replicates - other.units.replicates)
        sign = int(low > 0 and own.min() > its.max()) - int(high < 0 and own.max() < its.min())
        return {
            "difference": own.mean() - its.mean(), "difference_low": low, "difference_high": high,
            "verdict": verdicts[sign],
        }  # fmt: skip


def lineage_tables(
    years: Mapping[str, int], values: pd.DataFrame, results: Sequence[Result], tuned: str | None = None
) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table of the lineage, where there is one, with its rows: a panel a corpus that all of it was measured on.

    `values` are the runs, as `results.tidy` has them; of the `results` come phenomena. UsageError for a system without
    a test perplexity.
    """
    if not years:
        return
    values = values[(values[[*PERPLEXITY]] == pd.Series(PERPLEXITY)).all(axis=1) & values["sums"].notna()]
    if missing := [system for system in years if system not in set(values["system"])]:
        raise UsageError(
            f"lineage: {', '.join(missing)} has no test perplexity in this study; add it to the systems and to "
            "benchmarks.perplexity, or leave it out"
        )
    panels = {str(corpus): part for corpus, part in values.groupby("corpus") if {*years} <= {*part["system"]}}
    if not panels:
        raise UsageError("lineage: there is no corpus that all of its systems were measured on; give them one")
    phenomena = dict(by_corpus([*results], "phenomena"))
    rows = []
    for corpus, part in panels.items():
        excess = _excess({name: runs for name, runs in phenomena.get(corpus, {}).items() if name in years})
        facts = {"corpus": corpus, **PERPLEXITY, "before": "", "verdict": "", "excess_runs": ""}
        rows += [facts | row | excess.get(row["system"], {}) for row in _compared(years, part)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    yield _lineage_table(frame, tuned), frame


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
        units, sums = oracle["result"].iloc[0].units, oracle["sums"].iloc[0]
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


def _lineage_table(frame: pd.DataFrame, tuned: str | None) -> Table:
    columns = [Column("System", numeric=False), Column("Year"), Column("Runs")]
    columns += [Column("PPL/word", "Test"), Column("95 % interval", "Test")]
    columns += [Column(title, "Against the row before") for title in ("nats/word", "95 % interval")]
    columns.append(Column("verdict", "Against the row before", numeric=False))
    columns += [Column(name, "Excess, nats/token") for name in PHENOMENA]

    def row(cell: pd.Series) -> Row:
        behind = tuple(cell["excess_runs"].split())
        values = [
            Value(ORACLES.get(cell["system"], cell["system"])),
            Value(_text(cell["year"], ".0f")),
            Value(str(cell["n"])),
            _mean(cell, "", 2),
            Value(interval_text(cell["ci_low"], cell["ci_high"], 2)),
            Value(_text(cell["difference"], "+.3f")),
            Value(interval_text(cell["difference_low"], cell["difference_high"], 3, signed=True)),
            Value(cell["verdict"]),
            *(Value(_text(cell[name], ".3f"), runs=behind) for name in EXCESS.values()),
        ]
        return Row(values, apart=cell["system"] == ORACLE)

    notes = [
        "In the order of history. PPL/word: perplexity a word of the test text, whatever the tokenizer; the lower, the "
        "better. Its interval is a bootstrap over the documents.",
        "Against the row before: the difference of the nats a word, the perplexities' logarithms; below 0 the row is "
        f"better. The verdict is better or worse {DECIDED.format(units='documents')}",
    ]
    if frame["excess_total"].notna().any():
        notes.append(EXCEEDED)
    notes += [text for oracle, text in ORACLE_NOTES.items() if oracle in set(frame["system"])]
    notes += [SPREAD, *filter(None, [tuned])]
    panels = {str(corpus): [row(cell) for _, cell in part.iterrows()] for corpus, part in frame.groupby("corpus")}
    title = "The lineage: held-out perplexity in the order of history"
    lead = ("Year", "Test PPL/word", "Test 95 % interval", "Against the row before nats/word")
    return filled_table("lineage", title, columns, panels, notes, (*lead, "Against the row before verdict"))


def gains_tables(
    comparisons: Sequence[Mapping[str, Any]], values: pd.DataFrame, tuned: str | None = None
) -> Iterator[tuple[Table, pd.DataFrame]]:
    """The table of what pretraining gives, where a study compares, with its rows; `values` are those of `results.tidy`.

    UsageError for a comparison that is not as above, and for a system, task or metric without numbers.
    """
    if not comparisons:
        return
    frame = pd.DataFrame([_gain(comparison, values) for comparison in comparisons])
    yield _gains_table(frame, tuned), frame


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
    return facts | pretrained.against(scratch, {1: "gains", -1: "loses", 0: "undecided"})


def _gains_table(frame: pd.DataFrame, tuned: str | None) -> Table:
    columns = [Column(title, numeric=False) for title in ("Pretraining", "Task", "Metric")]
    columns += [Column(title) for title in ("Labels", "Runs", "From scratch", "Pretrained", "Bayes-optimal")]
    columns += [Column("points", "Gain"), Column("95 % interval", "Gain"), Column("verdict", "Gain", numeric=False)]

    def row(cell: pd.Series) -> Row:
        names = [cell["pretraining"], cell["task"], METRICS.get(cell["metric"], cell["metric"]), str(cell["labels"])]
        values = [
            *map(Value, [*names, span(cell[["scratch_n", "n"]])]),
            _mean(cell, "scratch_", 1, 100),
            _mean(cell, "", 1, 100),
            Value(_text(100 * cell["bayes_optimal"], ".1f")),
            Value(_text(100 * cell["difference"], "+.1f")),
            Value(interval_text(100 * cell["difference_low"], 100 * cell["difference_high"], 1, signed=True)),
            Value(cell["verdict"]),
        ]
        return Row(values)

    notes = [
        "Test splits; metrics, differences and intervals are times 100. Both systems of a row are trained on the same "
        "labels, one from scratch and one with what pretraining gave it. Bayes-optimal: the best possible prediction, "
        "where it is known.",
        f"Pretraining gains or loses {DECIDED.format(units='examples')}",
        SPREAD,
        *filter(None, [tuned]),
    ]
    corpora = frame.groupby("corpus", sort=False)
    panels = {str(corpus): [row(cell) for _, cell in part.iterrows()] for corpus, part in corpora}
    return filled_table("gains", "What pretraining gives", columns, panels, notes)


def _mean(cell: pd.Series, side: str, digits: int, scale: float = 1) -> Value:
    runs = tuple(cell[f"{side}runs"].split())
    spread = _text(scale * cell[f"{side}std"], f".{digits}f")
    return Value(f"{scale * cell[f'{side}mean']:.{digits}f}", spread, runs=runs, hint=", ".join(runs))


def _text(number: float, form: str) -> str:
    return "" if isnan(number) else format(number, form)
