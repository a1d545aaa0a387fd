"""Make docs/scoreboard.md: each published number with its best run in any study, by published table."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import isnan, log10
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
import yaml

from docs.studies_table import STUDIES, aggregates, commit_of
from retable.core.escaping import markdown
from retable.metrics.likelihood import LIKELIHOODS
from retable.reporting.names import display_name
from retable.reporting.results import CELL, ORACLE, read_references
from retable.reporting.verdicts import MEANINGS, NOT_RUN, UNJUDGED, judged, reproduction

OF = ["of", *CELL[1:]]  # columns that identify a published number; `of`: the system that it was published for
SHARES = ("accuracy", "precision", "recall", "f1", "matthews", "exact_match", "pearson", "spearman", "rouge")
LACKS = ("no recipe", "needs", "one person")  # rows whose reason begins so need more than time on two cores
WIDTH = 128  # characters of a line
HEADS = ("system", "metric", "verdict", "published", "ours", "seeds", "study", "commit", "cost", "differences")
RULE = "| :--- | :--- | :--- | ---: | ---: | ---: | :--- | :--- | :--- | --- |"  # browsers do not wrap aligned columns
TITLES = {  # of corpora and tasks
    **{"ptb": "Penn Treebank", "brown": "Brown", "ap_news": "AP News", "lm1b": "One Billion Word", "names": "Names"},
    **{"sts": "STS", "sentence_similarity": "Sentence similarity"},
    **{"tinyshakespeare": "Tiny Shakespeare", "answers": "SQuAD", "summaries": "CNN and Daily Mail"},
    **{"translation": "Multi30k, 2016", "translation_2017": "Multi30k, 2017", "translation_coco": "Multi30k, MSCOCO"},
}
METRICS = {"perplexity_word": "PPL/word", "perplexity_token": "PPL/token", "bits_per_byte": "bits/byte", "bleu": "BLEU"}


@cache
def numbers() -> pd.DataFrame:
    """Return each published number with its verdict and best run; column `study` has the run's study, "" without a run.

    A run of the published recipe is better than a run of another recipe. Among equals, more seeds are better, and then
    a better validation score. Test scores never decide.
    """
    references = read_references()
    references = references.assign(of=references["repeats"].where(references["repeats"] != "", references["system"]))
    studies = [aggregates(path).assign(study=path.parent.name) for path in sorted(STUDIES.glob("*/results"))]
    measured = pd.concat(studies, ignore_index=True)
    measured = measured[(measured["n"] > 0) & (measured["system"] != ORACLE)]
    runs = references[[*CELL, "of", "other_recipe"]].merge(measured, on=CELL)
    key = ["study", *(name for name in CELL if name != "split")]
    validation = measured[measured["split"] == "validation"].set_index(key)["mean"]
    signs = runs["metric"].isin([*LIKELIHOODS]).map({True: 1, False: -1})
    runs["validation"] = validation.reindex(pd.MultiIndex.from_frame(runs[key])).to_numpy() * signs
    runs["differs"] = runs["other_recipe"] != ""
    runs = runs.sort_values(["differs", "n", "validation", "study"], ascending=[True, False, True, True], kind="stable")
    runs = runs.drop_duplicates(OF)
    shown = references.merge(runs[[*CELL, "study"]], how="left", on=CELL)
    has_run = pd.MultiIndex.from_frame(shown[OF]).isin(pd.MultiIndex.from_frame(runs[OF]))
    shown = shown[shown["study"].notna() | (~has_run & (shown["repeats"] == ""))].assign(repeats="")
    of_runs = judged(runs[[*CELL, "mean", "std", "n", "ci_low", "ci_high", "runs"]], shown)
    shown = shown.drop(columns="note").rename(columns={"tolerance": "planned"})
    frame = shown.merge(of_runs.drop(columns=["published", "source"]), how="left", on=CELL)
    frame["tolerance"] = frame["tolerance"].fillna(frame["planned"])
    return frame.fillna({"study": "", "verdict": NOT_RUN, "note": "", "runs": "", "n": 0})


def counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the published numbers that count: all except those from memory and our measurements of peer libraries."""
    return frame[~frame["memory"] & ~frame["measured"]]


def totals(more: str = "") -> str:
    """Return a sentence with the count of published numbers by verdict, followed by the text `more`."""
    frame = counted(numbers())
    tables = frame.groupby("table")
    reproduced = sum(reproduction(table).reproduced for _, table in tables)
    judged = (
        f"{_judged_of(frame).sum()} of {len(frame)} published numbers in {tables.ngroups} tables were run and judged"
    )
    return fill(f"{judged}: {_counts(frame)}. Whole tables reproduced: {reproduced}. {more}".rstrip(), WIDTH)


def _judged_of(frame: pd.DataFrame) -> pd.Series:
    return ~frame["verdict"].isin((NOT_RUN, UNJUDGED))


def _counts(frame: pd.DataFrame) -> str:
    counts = Counter(frame["verdict"])
    return ", ".join(f"`{each}` {counts[each]}" for each in MEANINGS if counts[each])


def scoreboard() -> str:
    """Return the tables of all published numbers in Markdown, by corpus or task."""
    frame = numbers()
    parts = [totals(), "", "| verdict | numbers | meaning |", "| --- | ---: | --- |"]
    counts = Counter(counted(frame)["verdict"])
    parts += [f"| {each} | {counts[each]} | {meaning} |" for each, meaning in MEANINGS.items()]
    return "\n".join([*parts, "", *_summaries(frame), *_tables(frame)])


def _summaries(frame: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of a table with a row for each published table in which at least one number was judged."""
    yield "| published table | published | judged | verdicts | rank correlation | reproduced |"
    yield "| --- | ---: | ---: | --- | ---: | --- |"
    for name, table in counted(frame).groupby("table", sort=False):
        if judged_rows := _judged_of(table).sum():
            found = reproduction(table)
            order = "" if isnan(found.correlation) else f"{found.correlation:.2f}"
            cells = (markdown(str(name)), len(table), judged_rows, _counts(table), order)
            yield f"| {' | '.join(map(str, cells))} | {'yes' if found.reproduced else 'no'} |"


def _tables(frame: pd.DataFrame) -> Iterator[str]:
    is_shown = (frame["study"] != "") | ~frame["not_run"].str.startswith(LACKS)
    subjects = frame["corpus"].where(frame["task"] == "", frame["task"])
    for subject, of_subject in frame.groupby(subjects, sort=False):
        shown = of_subject[is_shown[of_subject.index]]
        if shown.empty:
            continue
        yield f"\n## {markdown(TITLES.get(str(subject), str(subject).replace('_', ' ').capitalize()))}"
        for name, table in shown.groupby("table", sort=False):
            yield f"\n### {markdown(str(name))}\n"
            if table["measured"].all():
                yield "These numbers are not from a published table, so they do not count.\n"
            yield from _rows(table)
    rest = frame[~is_shown]
    summary = f"{len(rest)} published numbers, with the reason why they were not run"
    yield f'\n## Not run\n\n<details markdown="1"><summary>{summary}</summary>\n'
    yield "| table | system | published | reason |\n| --- | --- | --- | --- |"
    for (name, system), rows in rest.groupby(["table", "system"], sort=False):
        values = ", ".join(f"{_metric(row)} {_number(row, row['value'])}" for row in rows.to_dict("records"))
        lacks = "; ".join(dict.fromkeys(filter(None, [*rows["not_run"], *("from memory" * m for m in rows["memory"])])))
        yield f"| {markdown(str(name))} | {_system(str(system))} | {markdown(values)} | {markdown(lacks)} |"
    yield "\n</details>"


def _rows(table: pd.DataFrame) -> Iterator[str]:
    yield f"| {' | '.join(HEADS)} |"
    yield RULE
    for row in table.to_dict("records"):
        ran = row["study"] != ""
        ours = f"{_number(row, row['mean'], 1)}{_spread(row, row['std'])}" if ran else ""
        report = f"[`{row['study']}`](../studies/{row['study']}/results/report.md)" if ran else ""
        commit, cost = _origin(row["study"], row["runs"]) if ran else ("", "")
        differs = markdown(row["note"] if ran else "; ".join(filter(None, (row["not_run"], row["note"]))))
        published = f"{_number(row, row['value'])}{_spread(row, row['tolerance'])}"
        seeds = f"{row['n']:.0f}" if ran else ""
        cells = (_system(row["system"]), _metric(row), row["verdict"], published, ours, seeds, report, commit, cost)
        yield f"| {' | '.join((*cells, differs))} |"


def _system(key: str) -> str:
    name = display_name(key)
    return f"`{key}`" if name == key and "_" in key else markdown(name)


def _metric(row: Mapping[str, Any]) -> str:
    return f"{row['split']} {METRICS.get(row['metric'], row['metric'])}".replace("_", " ")


def _number(row: Mapping[str, Any], value: float, further: int = 0) -> str:
    """Format a number with the digits of the published number and `further` more digits; shares are in percent."""
    scale = 100 if row["metric"].startswith(SHARES) else 1
    digits = max(0, round(-log10(2 * row["rounding"])) - (2 if scale == 100 else 0)) + further
    return f"{value * scale:.{digits}f}"


def _spread(row: Mapping[str, Any], value: float) -> str:
    return "" if isnan(value) else f" ± {_number(row, value, 1)}"


@cache
def _origin(study: str, runs: str) -> tuple[str, str]:
    """Return the commit and minutes of runs; if a record lacks the seconds, the cost of the whole study, in words."""
    records = _records(STUDIES / study / "records", runs.split()).values()
    commits = sorted({record["commit"][:8] for record in records if record["commit"]})
    commit = ", ".join(commits) or commit_of(STUDIES / study / "results")
    seconds: list[float | None] = [record.get("seconds") for record in records]
    if seconds and all(seconds):
        return f"`{commit}`", f"{sum(filter(None, seconds)) / 60:.1f} minutes"
    cost = yaml.load((STUDIES / study / "study.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader).get("cost", "")
    return f"`{commit}`" if commit else "", markdown(f"whole study: {cost}")


def _records(folder: Path, cells: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return, by cell, the key `made` of the records of cells and of the trained cells that they were made from."""
    made: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        if (path := folder / f"{cell}.json").exists():
            record = json.loads(path.read_text(encoding="utf-8"))
            origins = [each for each in record["run"].get("made_from", []) if not re.match("prepare|tokenize", each)]
            made |= {cell: record["made"], **_records(folder, origins)}
    return made
