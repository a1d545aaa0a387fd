"""Test recorded bands: the messages for a table inside and outside of its bands."""

import os
import subprocess

import pandas as pd
import pytest
import yaml

from pipelines.config.project import CONF, STUDIES
from pipelines.executors.client import python_of
from pipelines.study.bounds import check
from retable.core.errors import UsageError
from retable.planning.conf import Conf
from retable.planning.study import expand, read_study
from retable.reporting.claims import check_rows
from tests.pipelines.conftest import Project

KEY = ["system", "task", "split", "metric"]
LINEAGE = pd.DataFrame(
    [
        ("kn5", "", "test", "perplexity_word", 9.5, ""),
        ("elman", "", "test", "perplexity_word", 9.0, "better"),
        ("lstm", "", "test", "perplexity_word", 9.01, "undecided"),
        ("published", "", "test", "perplexity_word", "", "not run"),
    ],
    columns=[*KEY, "mean", "verdict"],
)


@pytest.mark.parametrize(("band", "holds", "found"), [
    (["elman", "better"], True, "elman test perplexity_word = better, expected better"),
    (["lstm", "better"], False, "lstm test perplexity_word = undecided, expected better"),
    (["lstm", "undecided"], True, "lstm test perplexity_word = undecided, expected undecided"),
    (["gpt", "better"], False, "gpt test perplexity_word = missing, expected better"),
    (["elman", 8.9, 9.1], True, "elman test perplexity_word = 9, band 8.9 to 9.1"),
    (["elman", 9.1, 9.2], False, "elman test perplexity_word = 9, band 9.1 to 9.2"),
    (["gpt", 8, 9], False, "gpt test perplexity_word = nan, band 8 to 9"),
    (["published", 8, 9], False, "published test perplexity_word = nan, band 8 to 9"),
])  # fmt: skip
def test_a_band_is_of_a_mean_or_of_a_verdict(band, holds, found):
    system, *expected = band
    assert [*check_rows(LINEAGE, [[system, "", "test", "perplexity_word", *expected]])] == [(holds, found)]


def test_a_band_is_of_one_row():
    twice = pd.concat([LINEAGE, LINEAGE])
    with pytest.raises(UsageError, match="several rows match lstm test perplexity_word, but a band must match one"):
        [*check_rows(twice, [["lstm", "", "test", "perplexity_word", "better"]])]


NESTING = pd.DataFrame(
    [("kn5", 1.9, 1.8, 2.0), ("lstm", 0.3, 0.2, 0.4), ("elman", 1.75, 1.6, 1.9)],
    columns=["system", "mean", "ci_low", "ci_high"],
).assign(phenomenon="nesting")


@pytest.mark.parametrize(
    ("row", "holds", "found"),
    [
        (["lstm", "nesting", "below", "kn5"], True, "0.2 to 0.4, expected below kn5, 1.8 to 2"),
        (["kn5", "nesting", "above", "lstm"], True, "1.8 to 2, expected above lstm, 0.2 to 0.4"),
        (["kn5", "nesting", "below", "lstm"], False, "1.8 to 2, expected below lstm, 0.2 to 0.4"),
        (["elman", "nesting", "below", "kn5"], False, "1.6 to 1.9, expected below kn5, 1.8 to 2"),  # an overlap
        (["lstm", "nesting", "below", "gpt"], False, "0.2 to 0.4, expected below gpt, nan to nan"),
        (["kn5", "nesting", 1.5, 2.5], True, "1.9, band 1.5 to 2.5"),
    ],
)
def test_a_comparison_is_of_whole_intervals(row, holds, found):
    assert [*check_rows(NESTING, [row])] == [(holds, f"{row[0]} nesting = {found}")]


def test_a_claim_that_the_numbers_contradict_drifts(tmp_path, forks):
    claim = {"claim": "LSTMs nest", "holds": {"nesting": [["lstm", "nesting", "below", "kn5"]]}}
    said = {"corpus": "ptb", "systems": [{"of": "lstm"}], "figure": {"nesting": claim}}
    (tmp_path / "study.yaml").write_text(yaml.dump(said), encoding="utf-8")
    (tmp_path / "results").mkdir()
    for table, code in ((NESTING, 0), (NESTING.assign(ci_low=0, ci_high=[2, 3, 1]), 1)):
        table.to_csv(tmp_path / "results/nesting.csv", index=False)
        checked = Project(tmp_path, forks).run("cli.main", "bands")
        assert checked.returncode == code and "'LSTMs nest': nesting: lstm nesting" in checked.stdout


@pytest.mark.parametrize(("row", "is_band"), [
    (["lstm", "", "test", "perplexity_word", "better"], True),
    (["lstm", "", "test", "perplexity_word", 8, 9.5], True), (["lstm", "", "test", "perplexity_word", 8], False),
    (["lstm", "", "test", "perplexity_word"], False), (["lstm", "test", "perplexity_word", 8, 9], False),
    (["lstm", "", "test", "perplexity_word", "8", 9], False), ("lstm", False),
])  # fmt: skip
def test_a_band_is_a_row_and_what_is_expected_of_it(row, is_band):
    said = {"corpus": "ptb", "systems": [{"of": "lstm"}], "bands": {"perplexity": [row]}}
    if is_band:
        assert expand(Conf(CONF), "mine", said).reported["bands"] == said["bands"]
    else:
        with pytest.raises(UsageError, match=r"study mine, bands.perplexity.*; write "):
            expand(Conf(CONF), "mine", said)


@pytest.mark.parametrize("row", [["lstm", "", "test", "perplexity_word", 8, 9], ["lstm", "", "", "x", "better"]])
def test_a_table_without_what_a_band_is_of_is_named(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = {"corpus": "ptb", "systems": [{"of": "lstm"}], "bands": {"x": [row]}}
    (tmp_path / "study.yaml").write_text(yaml.dump(said), encoding="utf-8")
    (tmp_path / "results").mkdir()
    LINEAGE[KEY].to_csv(tmp_path / "results/x.csv", index=False)
    asked = "mean" if len(row) == 6 else "verdict"
    with pytest.raises(UsageError, match=rf"x\.csv has no column {asked}, which the bands of this table need; name a"):
        [*check()]


def test_a_drift_is_a_line_and_exit_code_1(tmp_path, forks):
    (folder := tmp_path / "results").mkdir()
    content = yaml.safe_load((STUDIES / "smoke/study.yaml").read_text(encoding="utf-8"))
    del content["figure"]  # the claim of the figure needs intervals
    (study := tmp_path / "study.yaml").write_text(yaml.dump(content), encoding="utf-8")
    recorded = read_study(Conf(CONF), study).reported["bands"]
    means = {table: [(*row[:4], (row[4] + row[5]) / 2) for row in rows] for table, rows in recorded.items()}

    def made():
        for table, rows in means.items():
            pd.DataFrame(rows, columns=[*KEY, "mean"]).to_csv(folder / f"{table}.csv", index=False)
        return Project(tmp_path, forks).run("cli.main", "bands")

    kept = made()
    assert kept.returncode == 0 and "DRIFT" not in kept.stdout
    assert kept.stdout.count("ok   ") == sum(map(len, means.values()))
    *key, mean = means["perplexity"][0]
    means["perplexity"][0] = (*key, 2 * mean)
    drifted = made()
    assert drifted.returncode == 1 and drifted.stdout.count("DRIFT perplexity: oracle") == 1


def test_the_nightlys_step_summarises_all_three_outcomes(tmp_path, forks):
    workflow = yaml.safe_load((STUDIES.parent / ".github/workflows/nightly.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["study"]["steps"]
    step = next(each["run"] for each in steps if "--summary" in each.get("run", ""))
    command, bands = step.splitlines()[0], {"x": [["lstm", "", "test", "perplexity_word", 8, 9]]}
    said = {"corpus": "ptb", "systems": [{"of": "lstm"}], "bands": bands}
    (tmp_path / "study.yaml").write_text(yaml.dump(said), encoding="utf-8")
    command = command.replace("${{ matrix.study }}", "")
    command = command.replace(".venv/bin/retable", f"{python_of(forks)} -m pipelines.cli.main")
    table, summary = tmp_path / "results/x.csv", tmp_path / "summary.md"

    def summarised(value: float | None) -> str:
        if value is not None:
            table.parent.mkdir(exist_ok=True)
            pd.DataFrame([("lstm", "", "test", "perplexity_word", value)], columns=[*KEY, "mean"]).to_csv(table)
        environment = os.environ | {"GITHUB_STEP_SUMMARY": str(summary)}
        subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, env=environment, check=True)
        text = summary.read_text(encoding="utf-8")
        summary.unlink()
        return text

    assert "No bands were checked: results/x.csv is missing" in summarised(None)
    assert summarised(8.5) == "### Bands\n\nAll 1 bands hold.\n"
    assert "- x: lstm test perplexity_word = 10, band 8 to 9\n" in summarised(10)


WORKFLOWS = {
    path.stem: yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
    for path in (STUDIES.parent / ".github/workflows").glob("*.yml")
}


def test_a_branch_is_tested_once_and_what_it_made_is_kept():
    """A branch with a pull request is not tested twice per push; a newer push ends the older run."""
    ci = WORKFLOWS["ci"]
    assert ci["on"] == {"push": {"branches": ["main"]}, "pull_request": ""}
    assert "${{ github.ref }}" in ci["concurrency"]["group"] and ci["concurrency"]["cancel-in-progress"] == "true"
    of_study = ("results", "work/log")
    kept_by = {
        ("ci", "test"): {"work/tests.xml", *(f"studies/smoke/{each}" for each in of_study)},
        ("nightly", "study"): {"mlflow.db", *(f"studies/${{{{ matrix.study }}}}/{each}" for each in of_study)},
    }
    for (name, job), kept in kept_by.items():
        step = WORKFLOWS[name]["jobs"][job]["steps"][-1]
        assert step["if"] == "always()" and step["uses"].startswith("actions/upload-artifact@")
        assert kept <= {*step["with"]["path"].splitlines()}


@pytest.mark.parametrize("name", [name for name, said in WORKFLOWS.items() if "schedule" in said["on"]])
def test_a_scheduled_workflow_tells_of_a_failure(name):
    jobs = WORKFLOWS[name]["jobs"]
    tell = jobs.pop("tell")
    needed = tell["needs"] if isinstance(tell["needs"], list) else [tell["needs"]]
    assert (tell["if"], tell["uses"], {*needed}) == ("failure()", "./.github/workflows/tell.yml", {*jobs})
    assert tell["permissions"] == WORKFLOWS["tell"]["permissions"]


GH = """#!/bin/bash
printf '%s\\n' "$*" >> calls
case "$1 $2" in "issue list") cat open ;; "issue comment" | "issue create") cat body.md > told ;; esac
"""


@pytest.mark.parametrize(("is_open", "summaries"), [(False, 0), (False, 2), (True, 1)])
def test_a_failure_is_told_in_one_issue(tmp_path, is_open, summaries):
    step = WORKFLOWS["tell"]["jobs"]["tell"]["steps"][-1]
    for number in range(summaries):
        (path := tmp_path / f"made/{number}/summary.md").parent.mkdir(parents=True)
        path.write_text(f"bands of {number}\n", encoding="utf-8")
    (tmp_path / "gh").write_text(GH, encoding="utf-8")
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "open").write_text("17\n" * is_open, encoding="utf-8")
    own = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NAME": "nightly", "RUN": "https://…/runs/1"}
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=own, check=True)
    label, listed, told = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert label == "label create nightly --force" and listed.startswith("issue list --label nightly --state open")
    assert told.startswith(
        "issue comment 17 " if is_open else "issue create --title The workflow nightly fails --label"
    )
    body = "".join(f"bands of {number}\n" for number in range(summaries))
    assert (tmp_path / "told").read_text(encoding="utf-8") == f"The run failed: https://…/runs/1\n{body}"
