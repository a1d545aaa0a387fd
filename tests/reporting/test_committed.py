"""The committed results of studies are what the code renders from the committed records."""

import pytest

from pipelines.app.rendering import write_results
from pipelines.config.project import STUDIES, enter_project
from pipelines.study.compose import set_study

NOT_COMMITTED = {"report.html", "runs.csv"}


@pytest.mark.parametrize("name", ["history", "smoke", pytest.param("gallery", marks=pytest.mark.long)])
def test_records_give_the_committed_bytes(name, monkeypatch, tmp_path):
    """If they do not, and the change is meant: `retable report STUDY`, and commit the results."""
    monkeypatch.chdir(tmp_path)  # and back
    enter_project(name)
    write_results(set_study(), {}, tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() >= NOT_COMMITTED
    committed = {path.name: path.read_bytes() for path in (STUDIES / name / "results").iterdir()}
    assert written.keys() - NOT_COMMITTED == committed.keys() - NOT_COMMITTED
    assert [file for file in committed.keys() - NOT_COMMITTED if committed[file] != written[file]] == []
