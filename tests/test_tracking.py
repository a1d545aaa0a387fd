import getpass
import threading
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
    expected = {"retable.key": "described", "retable.corpus": "grammar", "seed": "1", "mlflow.user": getpass.getuser()}
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


def test_scores_stand_on_the_run_of_what_was_measured_too(client):
    trained = start("trained", lr=0.01)
    trained.log([(20, "validation/loss", 0.25)])
    trained.describe({"steps": 20}, [])
    for value in (9.5, 9.0, 9.0):  # measured again, otherwise once
        measuring = tracking.start("perplexity", "measuring", {}, {}, measured=trained.id)
        measuring.describe({"test/perplexity_word": value, "weight/lstm-1+a": 1.0, "seconds": 3.0}, [])
    scored = client.get_run(trained.id).data
    assert scored.params == {"lr": "0.01"}
    scores = {"test/perplexity_word": 9.0, "weight/lstm-1_a": 1.0}  # a name that MLflow allows
    assert scored.metrics == {"steps": 20, "validation/loss": 0.25} | scores
    assert history(client, trained, "test/perplexity_word") == [(0, 9.5), (0, 9.0)]


def test_data_sets_are_inputs(client):
    sets = [tracking.DataSet("ptb/word train.bin", "ad" * 32, "train", "outputs/encode/ptb/word/train.bin")]
    for _ in range(2):
        run = tracking.start("lstm-1", "reads", {}, {}, sets)
    (read,) = client.get_run(run.id).inputs.dataset_inputs
    assert (read.dataset.name, read.dataset.digest) == ("ptb/word train.bin", "ad" * 18)
    assert {tag.key: tag.value for tag in read.tags} == {"mlflow.data.context": "train"}


def test_a_group_is_one_run_which_others_stand_under(client):
    first, again = (tracking.group("lineage", "study/lineage", {"retable.stage": "study"}) for _ in range(2))
    assert first == again and tracking.known(first) and not tracking.known("0" * 32)
    assert client.get_run(first).info.status == "FINISHED"


def test_a_monitor_ends_with_its_run(client, monkeypatch, capfd):
    def monitors():
        return [each for each in threading.enumerate() if each.name == "SystemMetricsMonitor"]

    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    run = tracking.start("lstm-1", "monitored", {}, {}, monitored=True)
    assert len(monitors()) == 1
    run.finish()
    assert monitors() == [] and capfd.readouterr() == ("", "")
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "false")
    tracking.start("lstm-1", "monitored", {}, {}, monitored=True)
    assert monitors() == []


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:///home/me/mlruns"])
def test_file_stores_are_refused(uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match=r"file store.*sqlite:////full/path/mlflow.db"):
        start("anywhere")
