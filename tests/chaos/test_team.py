"""Test a team: MLflow on PostgreSQL, files and cells in S3, with only the settings of docs/howto/team.md."""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from retable.core.artifacts import read_record
from tests.chaos.servers import KEYS, PASSWORD, postgres, s3
from tests.pipelines.conftest import SMALL_CORPUS, Project
from tests.pipelines.test_repro import Repro, small_project

pytestmark = pytest.mark.chaos

BUCKET, MACHINES = "team", 8
KN3 = ["pretrain", "corpus=grammar_tiny", "recipe=counted/kn3"]
BY_MAKE_REPRO = {"RETABLE_STUDY": "smoke", "DVC_STAGE": "pretrain@kn3-1"}


@pytest.fixture(scope="module")
def store():
    with s3(BUCKET) as environment:
        yield environment


@pytest.fixture(scope="module")
def settings(store):
    """Return the settings of a team member; the database is empty."""
    with postgres() as address:
        yield {"MLFLOW_TRACKING_URI": address, "MLFLOW_DEFAULT_ARTIFACT_ROOT": f"s3://{BUCKET}/mlflow", **store}


@pytest.fixture(scope="module")
def machines(tmp_path_factory, forks, settings):
    """Return copies of a prepared project, one per machine; on each, a cell was made at the same time."""
    first = Project(tmp_path_factory.mktemp("machines") / "0", forks)
    first.folder.mkdir()
    for command in (SMALL_CORPUS, ["corpus=grammar_tiny"]):
        first.succeed("prepare" if command is SMALL_CORPUS else "tokenize", *command)
    shutil.rmtree(first.folder / "mlartifacts")
    (first.folder / "mlflow.db").unlink()
    folders = [first.folder, *(first.folder.with_name(str(n)) for n in range(1, MACHINES))]
    for folder in folders[1:]:
        shutil.copytree(first.folder, folder)
    made = [Project(folder, forks) for folder in folders]
    with ThreadPoolExecutor(MACHINES) as pool:
        each = enumerate(made)
        done = [*pool.map(lambda of: of[1].run(*KN3, f"system=kn3_{of[0]}", **BY_MAKE_REPRO, **settings), each)]
    for folder, ended in zip(folders, done, strict=True):
        assert ended.returncode == 0, ended.stderr
        (folder / "said.txt").write_text(ended.stdout + ended.stderr, encoding="utf-8")
    return made


@pytest.fixture
def client(settings, monkeypatch) -> MlflowClient:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return MlflowClient(settings["MLFLOW_TRACKING_URI"])


def runs(client: MlflowClient) -> list[Run]:
    """Return the MLflow runs of cells."""
    found = client.search_runs([client.get_experiment_by_name("retable").experiment_id])
    return [run for run in found if "retable.cell" in run.data.tags]


def cell(machine: Project, n: int) -> Path:
    return machine.folder / f"outputs/pretrain/grammar_tiny/kn3_{n}-1"


def test_eight_machines_write_at_once(machines, client):
    for n, machine in enumerate(machines):
        if (machine.folder / "work/mlflow").exists():  # another machine created the tables at the same moment
            machine.succeed("cli.main", "sync", **os.environ)
        run = client.get_run(read_record(cell(machine, n))["mlflow_run_id"])
        assert (run.info.status, run.data.tags["retable.system"]) == ("FINISHED", f"kn3_{n}")
        assert run.info.artifact_uri == f"s3://{BUCKET}/mlflow/retable/{run.info.run_id}/artifacts"
        kept = client.download_artifacts(run.info.run_id, "metrics.json")
        assert Path(kept).read_bytes() == (cell(machine, n) / "metrics.json").read_bytes()
        assert not (machine.folder / "mlflow.db").exists() and not (machine.folder / "mlartifacts").exists()


def test_they_stand_under_one_study(machines, client):
    machines[0].succeed(*KN3, "system=kn3_last", **BY_MAKE_REPRO, **os.environ)
    found = runs(client)
    assert len(found) == MACHINES + 1
    (study,) = {run.data.tags["mlflow.parentRunId"] for run in found}
    assert client.get_run(study).info.run_name == "smoke"


def test_no_secret_is_written(machines, client, settings):
    gone = re.sub(r":\d+/", ":1/", settings["MLFLOW_TRACKING_URI"])
    for name, address in {
        "gone": gone, "server": gone.replace("postgresql", "http"), "odd": gone.replace("postgresql", "odd")
    }.items():  # fmt: skip
        done = machines[0].run(*KN3, f"system={name}", **settings | {"MLFLOW_TRACKING_URI": address})
        assert done.returncode == 0 and "MLflow does not answer" in done.stderr, done.stderr
        (machines[0].folder / f"said-{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    files = [path for machine in machines for path in machine.folder.rglob("*") if path.is_file()]
    kept = [Path(client.download_artifacts(run.info.run_id, "")) for run in runs(client)]
    files += [path for folder in kept for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
    assert [run for run in runs(client) if PASSWORD in str(run.to_dictionary())] == []


def test_a_second_clone_makes_nothing(tmp_path, forks, store):
    own = Repro(tmp_path / "own", forks)
    own.environment |= store
    small_project(own)
    own("dvc", "remote", "add", "--default", "team", f"s3://{BUCKET}/cells")
    assert len(own.made()) == 8
    own.commit()
    pushed = own("dvc", "push")
    assert re.search(r"[1-9]\d* files? pushed", pushed), pushed

    own("git", "clone", "--quiet", ".", "../other")
    other = Repro(tmp_path / "other", forks)
    other.environment |= store
    other("dvc", "pull")
    assert "Running stage" not in other("dvc", "repro")
    assert other.made() == ["report"]  # the report's page names the runs of this machine, so it is not shared
    assert other.make().stdout.endswith("Nothing to do. The report: studies/history/results/report.html\n")
    assert other("git", "status", "--porcelain") == ""
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in (other.folder / ".dvc/config").read_text(encoding="utf-8")
