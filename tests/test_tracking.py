from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from retable import tracking
from retable.errors import UsageError


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> MlflowClient:
    """The store, made once: that takes seconds."""
    root = tmp_path_factory.mktemp("tracking")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(root))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        start("first")
        assert (root / "mlflow.db").exists()
        yield MlflowClient(f"sqlite:///{root / 'mlflow.db'}")


def start(key: str, **parameters) -> tracking.Run:
    tags = {"retable.corpus": "grammar", "seed": 1}
    return tracking.start("pretrain grammar/lstm-1", key, parameters, tags)


def runs(client: MlflowClient, key: str) -> list:
    experiment = client.get_experiment_by_name("retable").experiment_id
    return client.search_runs([experiment], f"tags.`retable.key` = '{key}'")


def history(client: MlflowClient, run: tracking.Run, metric: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run.id, metric)]


def test_a_killed_stage_goes_on_in_its_run(client):
    first, other, resumed = start("killed"), start("another"), start("killed")
    assert first.id == resumed.id != other.id
    assert [run.info.run_id for run in runs(client, "killed")] == [first.id]


def test_a_parameter_may_be_called_what_mlflow_does_not_allow(client):
    """GLUE's MRPC calls its columns so."""
    run = start("named", **{"task.prompt.#1 String": "sentence1"})
    assert client.get_run(run.id).data.params == {"task.prompt._1 String": "sentence1"}


def test_parameters_and_tags_are_there(client):
    run = start("described", **{"model.d_model": 200, "init": None, "long": "x" * 7000})
    data = client.get_run(run.id).data
    assert data.params == {"model.d_model": "200", "init": "None", "long": "x" * 6000}
    expected = {"retable.key": "described", "retable.corpus": "grammar", "seed": "1"}
    assert expected.items() <= data.tags.items()
    assert client.get_run(run.id).info.run_name == "pretrain grammar/lstm-1"


def test_a_point_logged_twice_counts_once(client):
    points = [(step, "train/loss", 1 / step) for step in range(1, 2501)]
    run = start("curve")
    run.log(points[:1800])
    run.log(points[1500:2000])
    start("curve").log([*points, (2500, "validation/loss", 0.5)])  # another process, after a kill
    assert history(client, run, "train/loss") == [(step, value) for step, _, value in points]
    assert history(client, run, "validation/loss") == [(2500, 0.5)]


def test_a_finished_run_is_closed_with_its_files_and_figures(client, tmp_path):
    run = start("finished")
    run.log([(10, "validation/loss", 0.5), (20, "validation/loss", 0.25)])
    (tmp_path / "run.json").write_text("{}")
    run.describe({"steps": 20, "validation/loss": 0.25}, [tmp_path / "run.json"])
    run.finish()
    stored = client.get_run(run.id)
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics == {"steps": 20, "validation/loss": 0.25}
    # What the curve ends with is no point at its beginning.
    assert history(client, run, "validation/loss") == [(10, 0.5), (20, 0.25)]
    assert [file.path for file in client.list_artifacts(run.id)] == ["run.json"]
    assert Path(stored.info.artifact_uri.removeprefix("file://")).is_relative_to(
        Path(client.tracking_uri.removeprefix("sqlite:///")).parent / "mlartifacts"
    )
    assert start("finished").id == run.id  # the same cell done again is recorded once


def test_a_failed_run_is_closed_and_opened_again_by_the_next_try(client):
    run = start("failed")
    run.fail()
    assert client.get_run(run.id).info.status == "FAILED"
    assert start("failed").id == run.id
    assert [run.info.status for run in runs(client, "failed")] == ["RUNNING"]


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:///home/me/mlruns"])
def test_file_stores_are_refused(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match=r"file store.*sqlite:////full/path/mlflow.db"):
        start("anywhere")
