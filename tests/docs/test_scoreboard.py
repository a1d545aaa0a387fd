"""Test that the scoreboard counts each published number once, and that the README's totals are those of the files."""

import csv
import re
from collections import Counter

import pytest
import yaml

from docs.scoreboard import numbers
from pipelines.cli.pages import ROOT
from pipelines.config.project import STUDIES
from retable.reporting.verdicts import MEANINGS


@pytest.fixture(scope="module")
def published():
    """Return the published numbers that count, from the file, each with whether it has a tolerance."""
    cells, section = {}, {}
    text = (ROOT / "src/retable/reporting/references.yaml").read_text(encoding="utf-8")
    for part in yaml.safe_load(text):
        if "systems" not in part:
            section = part
            continue
        for system, entry in part["systems"].items():
            row = {**section, **part, **entry}
            if row.get("memory") or row.get("measured") or row.get("repeats"):
                continue
            for split in row["values"]:
                for metric in [row["metric"]] if isinstance(row["metric"], str) else row["metric"]:
                    judged = bool({"tolerance", "deviation"} & {*row}) or row.get("basis") == "deterministic"
                    cells[system, row["corpus"], row.get("task", ""), split, metric] = judged
    return cells


def test_the_totals_of_the_readme_are_a_count_over_the_files(published):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"<!-- totals -->\n\n(.*?)\n\n", readme, re.DOTALL)
    line = " ".join(line.split())
    run = set()
    for path in STUDIES.glob("*/results/*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if {"system", "split", "runs", "ci_low"} <= {*row} and row["runs"]:
                    run.add(tuple(row[name] for name in ("system", "corpus", "task", "split", "metric")))
    judged = sum(may and cell in run for cell, may in published.items())
    assert line.startswith(f"{judged} of {len(published)} published numbers in ")
    page = (ROOT / "docs/scoreboard.md").read_text(encoding="utf-8")
    sections = [part for part in page.split("\n### ")[1:] if "it does not count" not in part]
    verdicts = Counter(row.split(" | ")[2] for part in sections for row in part.splitlines() if row.count(" | ") == 9)
    counts = ", ".join(f"`{each}` {verdicts[each]}" for each in MEANINGS if verdicts[each])
    assert f" were run and judged: {counts}. " in line
    assert sum(verdicts[each] for each in MEANINGS) == judged


def test_a_number_counts_once_by_its_best_run(published):
    rows = numbers().set_index(["of", "corpus", "task", "split", "metric"])
    assert rows.index.is_unique and {*published} <= {*rows.index}
    place = ("ptb", "", "test", "perplexity_word")
    small, gt5 = rows.loc["lstm_small", *place], rows.loc["gt5", *place]
    # three studies have the small LSTM; two of them have three seeds, and this one is better on validation
    assert (small["study"], small["system"], small["n"]) == ("ptb", "lstm_small", 3)
    assert (gt5["study"], gt5["verdict"]) == ("ptb_combined", "pass")  # this system is in only one study
