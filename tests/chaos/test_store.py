"""Test MLflow's store: created by eight stages at once; locked, moved or damaged during training.

There must be one run, with each point once.
"""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from retable.core.artifacts import read_record
from tests.chaos.project import Project
from tests.chaos.test_interruptions import COMMANDS, LSTM, TINY

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def prepared(forks, tmp_path_factory) -> Path:
    """Return a project with a cell whose training was not disturbed."""
    project = Project(tmp_path_factory.mktemp("prepared") / "project", forks)
    for name in ("prepare/grammar_tiny", "tokenize/grammar_tiny/word", "lstm"):
        project.succeed(*COMMANDS[name])
    return project.folder


@pytest.fixture
def folder(prepared, tmp_path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "project"))


def test_eight_stages_at_once_make_one_store(folder, forks):
    (folder / "mlflow.db").unlink()
    names = [f"kn3_{n}" for n in range(8)]
    projects = {name: Project(folder, forks, called=name) for name in names}
    with ThreadPoolExecutor(8) as pool:
        ended = pool.map(
            lambda name: projects[name].run("pretrain", TINY, "recipe=counted/kn3", f"system={name}"), names
        )
    for code, said in ended:
        assert code == 0 and "MLflow does not answer" not in said, said
    project = projects[names[0]]
    assert not project.unfinished()
    found = project.runs()
    assert sorted(found) == [f"run pretrain {name}-1" for name in names]
    assert all(len(json.loads(runs)) == 1 for runs in found.values())
    assert project.left() == []


@pytest.mark.parametrize("how", ["locked", "moved", "damaged"])
def test_the_store_fails_in_mid_training(how, folder, forks):
    project, store = Project(folder, forks), folder / "mlflow.db"
    undisturbed = project.runs()
    callback = f"{{_target_: tests.chaos.outage.Failing, store: {store}, how: {how}, lost: 5, back: 9}}"
    address = {"MLFLOW_TRACKING_URI": f"sqlite:///{store}?timeout=0.1"}  # how many seconds a client waits for a lock
    said = project.succeed("pretrain", *LSTM, f"+callbacks.failing={callback}", "system=failing", **address)
    assert said.count("MLflow does not answer") == 1, said
    project.succeed("tokenize", TINY, "tokenizer=word_marked")
    assert project.runs()["run pretrain failing-1"].replace("failing", "lstm") == undisturbed["run pretrain lstm-1"]
    assert read_record(folder / "outputs/pretrain/grammar_tiny/failing-1")["mlflow_run_id"] is not None
    assert {path.name for path in project.left()} <= {"mlflow"}
    assert [path.name for path in folder.glob("work/mlflow/*")] in ([], ["lock"])
