import errno
import fcntl
import getpass
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
import threading
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from retable.core.artifacts import read_record, write_record
from retable.core.errors import UsageError
from retable.tracking import run as tracking
from retable.tracking.registry import register
from retable.tracking.store import cell_of, concealed, create


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> MlflowClient:
    """Return the client of a store that is created once for all tests, because this takes seconds."""
    root = tmp_path_factory.mktemp("tracking")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(root))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        start("first")
        assert (root / "mlflow.db").exists()
        yield MlflowClient(f"sqlite:///{root / 'mlflow.db'}")


def start(key: str, **settings) -> tracking.Run:
    tags = {"retable.corpus": "grammar", "retable.cell": "pretrain/grammar/lstm-1", "seed": "1"}
    return tracking.start(tracking.RunSpec("pretrain grammar/lstm-1", key, tags=tags, **settings))


def runs(client: MlflowClient, key: str) -> list:
    experiment = client.get_experiment_by_name("retable").experiment_id
    return client.search_runs([experiment], f"tags.`retable.key` = '{key}'")


def history(client: MlflowClient, run: tracking.Run, metric: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client.get_metric_history(run.id, metric)]


@pytest.mark.long
def test_a_killed_stage_goes_on_in_its_run_with_parameters_tags_and_inputs(client):
    """MLflow does not allow the name of a column of GLUE's MRPC in parameters."""
    given = {"model.d_model": "200", "init": "None", "long": "x" * 7000, "task.prompt.#1 String": "sentence1"}
    sets = [tracking.DataSet("ptb/word train.bin", "ad" * 32, "train", "outputs/tokenize/ptb/word/train.bin")]
    first, other, resumed = (start(key, parameters=given, data_sets=sets) for key in ("killed", "another", "killed"))
    assert first.id == resumed.id != other.id
    (run,) = runs(client, "killed")
    assert (run.info.run_id, run.info.run_name) == (first.id, "pretrain grammar/lstm-1")
    named = {"task.prompt._1 String": "sentence1", "long": "x" * 6000}
    assert run.data.params == {"model.d_model": "200", "init": "None"} | named
    expected = {"retable.key": "killed", "retable.corpus": "grammar", "seed": "1", "mlflow.user": getpass.getuser()}
    assert expected.items() <= run.data.tags.items()
    (read,) = run.inputs.dataset_inputs
    assert (read.dataset.name, read.dataset.digest) == ("ptb/word train.bin", "ad" * 18)
    assert {tag.key: tag.value for tag in read.tags} == {"mlflow.data.context": "train"}


@pytest.mark.parametrize("tags", [
    {"retable.cell": "../../outside/cell"},
    {"retable.cell": "/outside/cell"},
    {"retable.cell": "pretrain/grammar/lstm-1", "retable.folder": "../other"},
    {"retable.cell": "pretrain/grammar/lstm-1", "retable.folder": "/other"},
])  # fmt: skip
def test_a_run_that_names_a_cell_outside_of_the_project_is_refused(client, tags, tmp_path, monkeypatch):
    run = tracking.start(tracking.RunSpec("from elsewhere", f"elsewhere {sorted(tags.values())[0]}", tags=tags))
    with pytest.raises(UsageError, match=f"runs:/{run.id} names the cell .* outside this project; write another run"):
        cell_of(run.id)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    waiting = tmp_path / tracking.WAITING / "planted.json"
    waiting.parent.mkdir(parents=True)
    opening = {"name": "planted", "key": "planted", "tags": tags}
    waiting.write_text(json.dumps({"opening": opening, "points": [], "ending": {}, "id": "1"}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"planted\.json names the cell .* outside this project"):
        tracking.send_waiting()


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
    run.finish({"steps": 20, "validation/loss": 0.25}, [tmp_path / "run.json"])
    stored = client.get_run(run.id)
    assert stored.info.status == "FINISHED"
    assert stored.data.metrics == {"steps": 20, "validation/loss": 0.25}
    # The last metrics of the curve are not points at its beginning.
    assert history(client, run, "validation/loss") == [(10, 0.5), (20, 0.25)]
    assert [file.path for file in client.list_artifacts(run.id)] == ["run.json"]
    assert Path(stored.info.artifact_uri.removeprefix("file://")).is_relative_to(
        Path(client.tracking_uri.removeprefix("sqlite:///")).parent / "mlartifacts"
    )
    assert start("finished").id == run.id  # a cell that is made again is recorded once


def test_a_failed_run_is_closed_and_opened_again_by_the_next_try(client):
    run = start("failed")
    run.fail()
    assert client.get_run(run.id).info.status == "FAILED"
    assert start("failed").id == run.id
    assert [run.info.status for run in runs(client, "failed")] == ["RUNNING"]


def test_scores_stand_on_the_run_of_what_was_measured_too(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = start("trained", parameters={"lr": "0.01"})
    trained.log([(20, "validation/loss", 0.25)])
    trained.finish({"steps": 20}, [])
    cell("outputs/pretrain/grammar/lstm-1", trained.id)
    for value in (9.5, 9.0, 9.0):  # measured again, with another result and with the same one
        opening = tracking.RunSpec("lstm-1-perplexity", "measuring", upstream=["outputs/pretrain/grammar/lstm-1"],
                                   measures="perplexity")  # fmt: skip
        measuring = tracking.start(opening)
        measuring.finish({"test/perplexity_word": value, "weight/lstm-1+a": 1.0, "seconds": 3.0}, [])
    stored = client.get_run(measuring.id)
    assert (stored.info.run_name, stored.data.tags["mlflow.parentRunId"]) == ("perplexity", trained.id)
    assert stored.data.tags["retable.upstream"] == trained.id
    scored = client.get_run(trained.id).data
    assert scored.params == {"lr": "0.01"}
    scores = {"test/perplexity_word": 9.0, "weight/lstm-1_a": 1.0}  # a name that MLflow allows
    assert scored.metrics == {"steps": 20, "validation/loss": 0.25} | scores
    assert history(client, trained, "test/perplexity_word") == [(0, 9.5), (0, 9.0)]

    cell("outputs/pretrain/grammar/lstm-2", "0" * 32)  # made on a machine with another store
    upstream = ["outputs/pretrain/grammar/lstm-2", "outputs/tokenize/grammar/word"]
    run = tracking.start(tracking.RunSpec("lstm-2-perplexity", "alone", upstream=upstream, measures="perplexity"))
    run.finish({"test/perplexity_word": 9.0}, [])
    stored = client.get_run(run.id)
    assert stored.info.run_name == "lstm-2-perplexity" and "mlflow.parentRunId" not in stored.data.tags


def test_a_group_is_one_run_which_others_stand_under(client):
    group = tracking.Group("lineage", "study/lineage", {"retable.stage": "study"})
    first = start("in a group", group=group).id
    (made,) = runs(client, "study/lineage")
    assert (made.info.run_name, made.info.status) == ("lineage", "FINISHED")
    experiment = client.get_experiment_by_name("retable").experiment_id
    second = create(client, experiment, "lineage", "study/lineage", {})
    below = create(client, experiment, "other", "of another", {"mlflow.parentRunId": second})
    third = start("in it too", group=group).id
    with pytest.raises(UsageError, match=f"^runs:/{below} did not make a cell; write the id of the run of a stage"):
        cell_of(below)
    parents = {client.get_run(run).data.tags["mlflow.parentRunId"] for run in (first, below, third)}
    assert parents == {made.info.run_id} and client.get_run(second).info.lifecycle_stage == "deleted"


def test_a_monitor_ends_with_its_run(client, monkeypatch, capfd):
    def monitors():
        return [each for each in threading.enumerate() if each.name == "SystemMetricsMonitor"]

    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    run = start("monitored", monitored=True)
    assert len(monitors()) == 1
    run.finish({}, [])
    assert monitors() == [] and capfd.readouterr() == ("", "")
    for value in ("false", None):  # by default a run does not record the machine's load
        monkeypatch.delenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING")
        if value is not None:
            monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", value)
        start("monitored", monitored=True)
        assert monitors() == []


PERPLEXITY, OTHER, THIRD = "test/perplexity_word", "test/excess", "acceptability/test/matthews"


@pytest.mark.parametrize("order", [(PERPLEXITY, OTHER), (OTHER, PERPLEXITY, THIRD), (OTHER, THIRD), (THIRD, OTHER)])
def test_runs_are_sorted_by_one_score_whatever_was_measured_last(order, client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    key = " ".join(order)
    trained = start(f"trained {key}")
    trained.finish({"steps": 20}, [])
    cell("outputs/pretrain/grammar/lstm-1", trained.id)
    values = {PERPLEXITY: 9.0, OTHER: 0.5, THIRD: 0.25}
    for name in order:
        upstream = ["outputs/pretrain/grammar/lstm-1"]
        measuring = tracking.start(tracking.RunSpec(name, f"{name} of {key}", upstream=upstream, measures="all"))
        measuring.finish({name: values[name], "validation/loss": 1.0}, [], name)
        own = client.get_run(measuring.id).data
        assert (own.metrics["score"], own.tags["retable.score"]) == (values[name], name)
    scored = client.get_run(trained.id).data
    expected = PERPLEXITY if PERPLEXITY in order else order[0]
    assert (scored.metrics["score"], scored.tags["retable.score"]) == (values[expected], expected)
    experiment = client.get_experiment_by_name("retable").experiment_id
    listed = client.search_runs([experiment], order_by=["metrics.score DESC"])
    scores = [run.data.metrics["score"] for run in listed if "score" in run.data.metrics]
    assert len(scores) > len(order) and scores == sorted(scores, reverse=True)


def test_a_study_has_the_means_of_its_tables_and_a_link_to_its_report(client, tmp_path, capsys):
    (page := tmp_path / "report.html").write_text("<p>a report")
    tracking.describe_group("study/unknown", "What it is for.", {"lstm/test/perplexity_word": 9.0}, page)
    assert runs(client, "study/unknown") == []
    start("of a study", group=tracking.Group("told", "study/told", {"retable.stage": "study"}))
    means = {f"system {i}/test/a+b": float(i) for i in range(1100)}
    for factor in (1.0, 2.0):  # a report that is made again
        metrics = {name: factor * value for name, value in means.items()}
        tracking.describe_group("study/told", "What it is for.", metrics, page)
    (study,) = runs(client, "study/told")
    assert study.data.metrics == {f"system {i}/test/a_b": 2.0 * i for i in range(1100)}
    note = study.data.tags["mlflow.note.content"]
    address = f"#/experiments/{study.info.experiment_id}/runs/{study.info.run_id}/artifacts/report.html"
    assert note.startswith("What it is for.\n\n") and f"]({address})" in note
    assert [file.path for file in client.list_artifacts(study.info.run_id)] == ["report.html"]
    assert capsys.readouterr() == ("", "")


def test_a_report_waits_for_no_store(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'missing/mlflow.db'}")
    tracking.describe_group("study/told", "", {}, tmp_path / "report.html")
    assert len(capsys.readouterr().err.splitlines()) == 1


def damaged(store: Path) -> None:
    store.write_bytes(b"no database" * 100)


def locked(store: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(store)
    connection.execute("begin exclusive")
    return connection


@pytest.fixture
def own(client, tmp_path, monkeypatch) -> tuple[MlflowClient, Path]:
    """Return a store that a test may damage."""
    store = tmp_path / "mlflow.db"
    shutil.copy(client.tracking_uri.removeprefix("sqlite:///"), store)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}?timeout=0.1")  # seconds to wait for a lock
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return MlflowClient(f"sqlite:///{store}"), store


@pytest.fixture
def quick(client, tmp_path, monkeypatch):
    """Return the path of a store that does not exist; when it is made, its tables are copied, which is quicker."""
    store = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))

    def opened(uri: str) -> MlflowClient:
        if not (path := Path(uri.removeprefix("sqlite:///"))).exists():
            shutil.copy(client.tracking_uri.removeprefix("sqlite:///"), path)
        return MlflowClient(uri)

    monkeypatch.setattr("retable.tracking.store.MlflowClient", opened)
    return store


def fails_with(number: int):
    def fail(*_) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_store_whose_making_broke_off_is_made_anew(quick, tmp_path, monkeypatch):
    """MLflow cannot use a store with only some of its tables, as after a full disk."""
    (tmp_path / ".mlflow.db-left").mkdir()  # by a kill
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", fails_with(errno.ENOSPC))
        patch.setattr(Path, "replace", fails_with(errno.ENOSPC))
        assert start("made anew").id is None
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db.lock", "work"}  # work/ marks the open run
    monkeypatch.setattr(os, "link", fails_with(errno.EPERM))  # a file system without hard links
    assert start("made anew").id is not None and quick.exists()


def test_a_store_that_another_process_made_meanwhile_keeps_its_runs(quick, client, monkeypatch):
    run = start("of another process")

    def link(begun: Path, store: Path) -> None:
        shutil.copy(client.tracking_uri.removeprefix("sqlite:///"), store)
        raise FileExistsError

    quick.unlink()
    monkeypatch.setattr(os, "link", link)
    assert start("of another process").id != run.id and {path.name for path in quick.parent.glob(".*")} == set()


def test_an_experiment_that_another_process_made_meanwhile_is_used(client, monkeypatch):
    found, seen = MlflowClient.get_experiment_by_name, []

    def find(self, name: str):
        seen.append(name)
        return found(self, name) if len(seen) > 1 else None

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_experiment_by_name", find)
        run = start("found late")
    assert len(seen) > 1 and [each.info.run_id for each in runs(client, "found late")] == [run.id]


def test_a_full_disk_leaves_no_mark_and_two_processes_do_not_send_at_once(client, monkeypatch):
    folder = tracking.root() / tracking.OPEN
    before = sorted(folder.glob("*"))
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", fails_with(errno.ENOSPC))
        start("on a full disk")
    assert sorted(folder.glob("*")) == before
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_metric_history", fails)
        start("sent later").finish({"steps": 1}, [])
        assert tracking.send_waiting() == 0 and tracking.n_waiting() == 1
    with (tracking.root() / tracking.WAITING / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert tracking.send_waiting() == 0
    assert tracking.send_waiting() == 1


@pytest.mark.long
def test_projects_that_start_at_once_on_a_new_store_share_it(tmp_path, monkeypatch):
    """The lock belongs to the store, not to a project: no table is created twice, and no run is lost."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/shared.db")
    processes = multiprocessing.get_context("fork")
    ids, together = processes.Queue(), processes.Barrier(4)

    def begin(project: Path) -> None:
        project.mkdir()
        os.chdir(project)
        os.environ["DVC_ROOT"] = str(project)
        together.wait()
        run = start(project.name)
        run.finish({"steps": 1.0}, [])
        ids.put(run.id)

    children = [processes.Process(target=begin, args=(tmp_path / f"project_{number}",)) for number in range(4)]
    for child in children:
        child.start()
    run_ids = [ids.get(timeout=300) for _ in children]
    for child in children:
        child.join()
    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    stored = client.search_runs([client.get_experiment_by_name("retable").experiment_id])
    assert {run.info.run_id for run in stored} == {*run_ids} and len({*run_ids}) == 4
    assert {run.info.status for run in stored} == {"FINISHED"}
    assert [path.name for path in tmp_path.glob("*.lock")] == ["shared.db.lock"]


def fails(*_, **__) -> None:
    raise MlflowException("(sqlite3.OperationalError) database is locked\n[SQL: …")


def test_what_mlflow_did_not_take_comes_at_the_end(client, monkeypatch, capsys):
    run = start("locked on the way")
    run.log([(1, "train/loss", 4.0)])
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", fails)
        run.log([(2, "train/loss", 3.0)])
    run.log([(3, "train/loss", 2.0)])  # too early for another try
    message = "MLflow does not answer: (sqlite3.OperationalError) database is locked; "
    assert capsys.readouterr().err.startswith(message)
    assert history(client, run, "train/loss") == [(1, 4.0)]
    run.finish({"steps": 3}, [])
    assert history(client, run, "train/loss") == [(1, 4.0), (2, 3.0), (3, 2.0)]
    assert client.get_run(run.id).info.status == "FINISHED" and tracking.n_waiting() == 0


@pytest.mark.parametrize("broken", [damaged, locked])
def test_what_was_made_without_mlflow_waits_for_it(own, broken, capsys):
    """A system and a score of it are sent after the next run that MLflow accepts, and then their records name their
    runs.
    """
    client, store = own
    whole = store.read_bytes()
    other = broken(store)
    points = [(step, "train/loss", 1 / step) for step in range(1, 4)]
    run = start("made without", parameters={"lr": "0.01"}, group=tracking.Group("lineage", "study/without", {}))
    trained = cell("outputs/pretrain/grammar/lstm-1", None)
    run.log(points)
    run.finish({"steps": 3}, [trained / "metrics.json"])
    assert run.id is None
    measuring = tracking.RunSpec("lstm-1-perplexity", "measured without", upstream=[str(trained)],
                                 measures="perplexity")  # fmt: skip
    tracking.start(measuring).finish({"test/perplexity_word": 9.0}, [])
    start("broke off without").fail()
    assert tracking.n_waiting() == 3 and capsys.readouterr().err.count("\n") == 3
    if other is None:
        store.write_bytes(whole)
    else:
        other.rollback()
        other.close()

    start("next").finish({}, [])
    assert tracking.n_waiting() == 0 and tracking.send_waiting() == 0
    (sent,), (scored,), (failed,) = (runs(client, f"{key} without") for key in ("made", "measured", "broke off"))
    assert (sent.info.status, scored.info.status, failed.info.status) == ("FINISHED", "FINISHED", "FAILED")
    assert sent.data.params == {"lr": "0.01"}
    assert sent.data.metrics == {"train/loss": 1 / 3, "steps": 3, "test/perplexity_word": 9.0}
    assert [point.step for point in client.get_metric_history(sent.info.run_id, "train/loss")] == [1, 2, 3]
    assert [file.path for file in client.list_artifacts(sent.info.run_id)] == ["metrics.json"]
    assert scored.data.tags["mlflow.parentRunId"] == sent.info.run_id
    assert read_record(trained)["mlflow_run_id"] == sent.info.run_id
    (study,) = runs(client, "study/without")
    assert sent.data.tags["mlflow.parentRunId"] == study.info.run_id


def test_what_ends_without_mlflow_has_its_curve_alone(client, monkeypatch):
    """Its points were sent as they came; the last of them are the final metrics, not points at the beginning."""
    run = start("ended without")
    run.log([(10, "validation/loss", 0.5), (20, "validation/loss", 0.25)])
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_metric_history", fails)
        run.finish({"steps": 20, "validation/loss": 0.25}, [])
    assert tracking.n_waiting() == 1 and tracking.send_waiting() == 1
    assert history(client, run, "validation/loss") == [(10, 0.5), (20, 0.25)]
    assert history(client, run, "steps") == [(0, 20)]


def test_a_run_that_another_process_begins_anew_or_that_was_cut_off_is_passed_over(client, monkeypatch):
    """The others are sent, and the stage whose run has just ended does not fail."""
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "get_metric_history", fails)
        for name in ("gone", "cut", "waits"):
            start(f"{name} meanwhile").finish({"steps": 1}, [])
    assert tracking.n_waiting() == 3
    gone, cut, _ = sorted((tracking.root() / tracking.WAITING).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    cut.write_text(cut.read_text()[:20])
    listed = Path.glob

    def glob(folder, pattern):
        listed_runs = [*listed(folder, pattern)]
        gone.unlink(missing_ok=True)
        return listed_runs

    monkeypatch.setattr(Path, "glob", glob)
    assert tracking.send_waiting() == 1


def test_a_store_that_was_made_anew_gets_all(own, client, monkeypatch):
    """During training, the store is replaced by a new one without this run.

    The new store gets all points, including those that the first store had. The same holds for the store of another
    server.
    """
    store = own[1]
    trained = cell("outputs/pretrain/grammar/lstm-1", None)
    run, moved = start("removed"), start("moved")
    for each in (run, moved):
        each.log([(1, "train/loss", 4.0)])
    write_record(trained, {"mlflow_run_id": run.id})
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
        moved.log([(2, "train/loss", 3.0)])
        moved.finish({"steps": 2}, [])
        assert tracking.n_waiting() == 0 and all_of(client, "moved") == moved.id
    another = shutil.copy(client.tracking_uri.removeprefix("sqlite:///"), store.with_name("another.db"))
    another.replace(store)
    run.log([(2, "train/loss", 3.0)])
    run.finish({"steps": 2}, [])
    assert tracking.n_waiting() == 1  # SQLite does not write into a replaced file, and a process opens a file once
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}?timeout=0.2")
    start("next").finish({}, [])
    sent = all_of(MlflowClient(f"sqlite:///{store}?timeout=0.2"), "removed")
    assert read_record(trained)["mlflow_run_id"] == sent != run.id


def all_of(client: MlflowClient, key: str) -> str:
    """Return the id of a run that has two points, each once."""
    (sent,) = runs(client, key)
    points = client.get_metric_history(sent.info.run_id, "train/loss")
    assert [(point.step, point.value) for point in points] == [(1, 4.0), (2, 3.0)]
    assert sent.info.status == "FINISHED" and sent.data.metrics["steps"] == 2
    return sent.info.run_id


def test_what_begins_again_does_not_wait_as_given_up(own):
    client, store = own
    other = locked(store)
    start("stopped").stop()
    assert tracking.n_waiting() == 1
    run = start("stopped")
    assert tracking.n_waiting() == 0
    other.rollback()
    run.finish({}, [])
    assert [each.info.status for each in runs(client, "stopped")] == ["FINISHED"]


@pytest.mark.parametrize("broken", [damaged, None], ids=["a damaged database", "a server that is not there"])
def test_a_command_that_needs_the_store_says_in_one_line_that_it_does_not_answer(own, broken, monkeypatch, tmp_path):
    if broken is not None:
        broken(own[1])
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:w0rd@127.0.0.1:9")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for command in (lambda: cell_of("0123"), lambda: register(tmp_path, "mine", "", None, None, [])):
        with pytest.raises(UsageError, match=r"^MLflow at .* does not answer: ") as refused:
            command()
        assert "\n" not in str(refused.value) and "w0rd" not in str(refused.value)


def opened(project: Path, *keys: str) -> multiprocessing.Process:
    """Start a process of a project with open runs; the second run of a key resumes the first."""
    processes = multiprocessing.get_context("fork")
    ready = processes.Event()

    def work() -> None:
        project.mkdir(exist_ok=True)
        os.environ["DVC_ROOT"] = str(project)
        _open = [start(key) for key in keys]
        ready.set()
        signal.pause()

    process = processes.Process(target=work, daemon=True)
    process.start()
    assert ready.wait(60)
    return process


def status(client: MlflowClient, key: str) -> str:
    (run,) = runs(client, key)
    return run.info.status


def test_the_next_command_closes_the_runs_of_dead_processes_and_no_others(own, tmp_path, monkeypatch):
    """Other processes use the same store, and may have a run of the same key in this project or on another machine."""
    client, _ = own
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    monkeypatch.setenv("DVC_ROOT", str(here))
    others = [opened(elsewhere, "shared", "elsewhere"), opened(here, "beside")]
    killed = opened(here, "alone", "shared", "resumed", "resumed", "beside")
    with_end = start("ended")
    with_end.finish({}, [])
    for key in ("alone", "shared", "resumed", "beside", "elsewhere"):
        assert status(client, key) == "RUNNING"
    killed.kill()
    killed.join()
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "delete_tag", fails)
        resumed = start("resumed")
    assert {status(client, key) for key in ("alone", "shared", "resumed")} == {"RUNNING"}  # MLflow did not answer
    resumed.finish({}, [])
    expected = {"alone": "KILLED", "shared": "RUNNING", "resumed": "FINISHED", "beside": "RUNNING", "ended": "FINISHED",
                "elsewhere": "RUNNING"}  # fmt: skip
    assert {key: status(client, key) for key in expected} == expected
    for process in others:
        process.kill()
        process.join()
    assert tracking.end_killed() == 1 and not (here / tracking.OPEN).exists()
    assert (status(client, "beside"), status(client, "shared")) == ("KILLED", "RUNNING")  # another machine's
    monkeypatch.setenv("DVC_ROOT", str(elsewhere))
    start("next").finish({}, [])
    assert {status(client, key) for key in ("shared", "elsewhere")} == {"KILLED"}
    every = (run.data.tags for key in (*expected, "next") for run in runs(client, key))
    assert not [tag for tags in every for tag in tags if tag.startswith(tracking.OPEN_BY)]


def test_a_run_whose_end_waits_is_no_killed_one(own, monkeypatch):
    client, _ = own
    run = start("ends without")
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_terminated", fails)
        run.finish({"steps": 1}, [])
    assert tracking.send_waiting() == 1 and tracking.end_killed() == 0
    (stored,) = runs(client, "ends without")
    assert stored.info.status == "FINISHED" and not [
        tag for tag in stored.data.tags if tag.startswith(tracking.OPEN_BY)
    ]
    assert not tracking.n_waiting() and not (tracking.root() / tracking.OPEN).exists()


def cell(name: str, run: str | None) -> Path:
    """Return a cell with its record."""
    Path(name).mkdir(parents=True)
    Path(name, "metrics.json").write_text(f'{{"seed": "{name}"}}', encoding="utf-8")
    write_record(Path(name), {"mlflow_run_id": run})
    return Path(name)


@pytest.mark.parametrize(("uri", "message"), [
    ("mlruns", "file store.*sqlite:////full/path/mlflow.db"),
    ("./mlruns", "file store"),
    ("file:///home/me/mlruns", "file store"),
    ("postgresql://me:pass%20w0rd@host:5432x/db", "is not an address; write https://host, or postgresql://"),
    ("post gres://host/db", "is not an address"),
    ("postgresql://me:w0rd@host/db", r"//\*\*\*@host/db .*MLFLOW_DEFAULT_ARTIFACT_ROOT=s3://bucket/mlflow"),
])  # fmt: skip
def test_what_is_no_address_of_a_store_is_refused_without_its_password(uri, message, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.delenv("MLFLOW_DEFAULT_ARTIFACT_ROOT", raising=False)
    with pytest.raises(UsageError, match=message) as refused:
        start("anywhere")
    assert "w0rd" not in str(refused.value)
    assert "no address" not in message or refused.value.__suppress_context__


@pytest.mark.long
def test_files_go_where_they_are_to(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("MLFLOW_DEFAULT_ARTIFACT_ROOT", f"{tmp_path}/files/")
    (tmp_path / "curve.csv").write_text("step", encoding="utf-8")
    run = start("elsewhere")
    run.finish({}, [tmp_path / "curve.csv"])
    assert (tmp_path / f"files/retable/{run.id}/artifacts/curve.csv").exists()


@pytest.mark.parametrize("installed", [True, False])
def test_a_database_without_an_answer_or_a_driver_holds_up_no_training(tmp_path, monkeypatch, capsys, installed):
    slept = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://127.0.0.1:1/db")
    monkeypatch.setenv("MLFLOW_DEFAULT_ARTIFACT_ROOT", "s3://bucket")
    monkeypatch.setattr("time.sleep", slept.append)
    if not installed:
        monkeypatch.setitem(sys.modules, "psycopg", None)
    start("gone").finish({}, [])
    stderr = capsys.readouterr().err
    assert "MLflow does not answer" in stderr and tracking.n_waiting() == 1
    assert installed or "import of psycopg halted" in stderr
    assert sum(slept) < 15 and (slept or not installed)  # seconds, at the start and at the end


@pytest.mark.parametrize(("text", "expected"), [
    ("API request to http://me:p@ss@host:5000/api failed", "API request to http://***@host:5000/api failed"),
    ("at postgresql://host/db?user=me&password=w0rd&x=1.", "at postgresql://host/db?user=me&password=***&x=1."),
    ("storage=postgresql://user:hunter2@nowhere/db: no", "storage=postgresql://***@nowhere/db: no"),
    ("connection to server at http://host:5000/api failed", "connection to server at http://host:5000/api failed"),
])  # fmt: skip
def test_passwords_are_concealed(text, expected):
    assert concealed(text) == expected
