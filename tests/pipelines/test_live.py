"""Test that the live studies, history and smoke, match the present code: their locks have its digests."""

import hashlib

import pytest
import yaml
from dvc.repo import Repo

from pipelines.config.project import enter_project
from pipelines.plan import report_plan
from pipelines.study.compose import composing, set_study
from pipelines.study.explain import Reasons
from retable.planning.graph import REPORT_PLAN


@pytest.mark.parametrize("name", ["history", "smoke"])
def test_a_live_study_is_as_the_present_code_makes_it(name, monkeypatch, tmp_path):
    """If this fails, run `make repro STUDY=…`, and commit the study's lock, records and results."""
    monkeypatch.chdir(tmp_path)  # so that the working folder is restored
    monkeypatch.delenv("RETABLE_DATA", raising=False)
    enter_project(name)
    study = set_study()
    with Repo() as repo, composing():
        reasons = Reasons(repo, study)
        assert {place: lines for place, cell in study.cells.items() if (lines := [*reasons.of_plan(cell)])} == {}
        plan = repo.stage.load_one("dvc.yaml", "plan")
        assert [dep.def_path for dep in plan.deps if dep.workspace_status()] == []
    with open("dvc.lock", encoding="utf-8") as file:
        noted = yaml.load(file, yaml.CSafeLoader)["stages"]["report"]["deps"]
    (md5,) = (dep["md5"] for dep in noted if dep["path"] == REPORT_PLAN)
    assert md5 == hashlib.md5(report_plan(study).encode(), usedforsecurity=False).hexdigest()
