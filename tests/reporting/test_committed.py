"""Test that the committed results of studies are rendered from committed records, and agree with the papers."""

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

from pipelines.app.rendering import write_results
from pipelines.config.project import STUDIES, enter_project
from pipelines.study.compose import set_study
from retable.reporting.figures import svg_of
from retable.reporting.report import figures_of_tables
from retable.reporting.results import CELL, references_of
from retable.reporting.verdicts import ELSEWHERE, NOT_RUN
from tests.reporting.specifications import REFERENCES

NOT_COMMITTED = {"report.html", "runs.csv"}
BOUND = ["corpus", "split", "metric"]  # the true distribution has one value for each combination


@pytest.fixture(scope="module")
def shown():
    """Return all rows of all committed tables of aggregates."""
    tables = {path: pd.read_csv(path, dtype=str, keep_default_na=False) for path in STUDIES.glob("*/results/*.csv")}
    tables = {path: table for path, table in tables.items() if {*CELL, "mean", "verdict"} <= {*table}}
    return pd.concat(tables.values(), keys=map(str, tables), names=["table"])


def test_no_number_is_better_than_the_true_distributions(shown):
    rows = shown[shown["metric"].isin(["perplexity_word", "bits_per_byte"]) & (shown["task"] == "")]
    rows = rows[rows["mean"] != ""].astype({"mean": float})
    bounds = rows[rows["system"] == "oracle"].set_index(BOUND, append=True)["mean"].groupby(["table", *BOUND]).first()
    found = rows[rows["system"] != "oracle"].join(bounds.rename("bound"), on=["table", *BOUND]).dropna(subset="bound")
    assert len(found) > 500 and found[found["mean"] <= found["bound"]].empty


def test_a_row_that_no_study_runs_says_why(shown):
    run = set(shown.loc[~shown["verdict"].isin([NOT_RUN, ELSEWHERE]), CELL].itertuples(index=False, name=None))
    alone = set(shown.loc[shown["verdict"].isin([NOT_RUN, ELSEWHERE]), CELL].itertuples(index=False, name=None)) - run
    reasons = REFERENCES.set_index(CELL)["not_run"]
    assert alone and {cell for cell in alone if not reasons[cell]} == set()
    assert {cell for cell in run if cell in reasons.index and reasons[cell]} == set()


def test_tables_give_the_committed_figures_of_a_study_without_records():
    """If this fails and the change is intended, run `retable report ptb`."""
    claims = yaml.safe_load((STUDIES / "ptb/study.yaml").read_text(encoding="utf-8"))["figure"]
    (figure,) = figures_of_tables(STUDIES / "ptb/results", figure=claims).items()
    assert svg_of(figure[1]) == (STUDIES / f"ptb/results/{figure[0]}.svg").read_text(encoding="utf-8")


def git(*command):
    return subprocess.run(["git", *command], cwd=STUDIES, capture_output=True, text=True)


def test_no_tolerance_was_set_or_widened_after_its_run(shown):
    """At the commit that made a cell, the references contain the row with a tolerance that is not narrower.

    Cells without a record name no commit: they were made before records were kept.
    """
    if git("rev-parse", "--is-shallow-repository").stdout != "false\n":
        pytest.skip("no git history, or a shallow one")
    judged = REFERENCES[REFERENCES["tolerance"].notna() & ~REFERENCES["afterwards"]]
    now, at, checked = judged.set_index(CELL), {}, set()
    rows = shown[["runs", *CELL]].reset_index("table").merge(judged[CELL], on=CELL).dropna(subset="runs")
    for row in rows.itertuples():
        cell = tuple(getattr(row, name) for name in CELL)
        records = [Path(row.table).parents[1] / "records" / f"{run}.json" for run in row.runs.split()]
        for record in (path for path in records if path.exists()):
            commit = json.loads(record.read_text(encoding="utf-8"))["made"]["commit"]
            if commit not in at:
                assert commit and not git("merge-base", "--is-ancestor", commit, "HEAD").returncode, (
                    f"{record.relative_to(STUDIES)}: commit {commit} is not in the history"
                )
                text = git("show", f"{commit}:src/retable/reporting/references.yaml").stdout
                at[commit] = references_of(text).set_index(CELL)
            assert cell in at[commit].index, f"{cell} was added after {commit}, which made {record}"
            before, after = at[commit].loc[cell], now.loc[cell]
            assert before["value"] == after["value"] and before["tolerance"] >= after["tolerance"], (cell, commit)
            checked.add(cell)
    assert checked


@pytest.mark.parametrize(
    "name",
    ["history", "smoke", *(pytest.param(name, marks=pytest.mark.long) for name in ("gallery", "shakespeare_gpu"))],
)
def test_records_give_the_committed_bytes(name, monkeypatch, tmp_path):
    """If this fails and the change is intended, run `retable report STUDY`, and commit the results."""
    monkeypatch.chdir(tmp_path)  # so that the working folder is restored
    enter_project(name)
    write_results(set_study(), {}, tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() >= NOT_COMMITTED
    committed = {path.name: path.read_bytes() for path in (STUDIES / name / "results").iterdir()}
    assert written.keys() - NOT_COMMITTED == committed.keys() - NOT_COMMITTED
    assert [file for file in committed.keys() - NOT_COMMITTED if committed[file] != written[file]] == []
