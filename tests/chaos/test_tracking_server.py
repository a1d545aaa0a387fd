"""Test that training continues when MLflow's server dies, and that each point is then recorded once."""

import contextlib
import os
import signal

import pytest
from mlflow.tracking import MlflowClient

from retable.core.artifacts import read_record
from tests.chaos.outage import serve
from tests.chaos.servers import free_port
from tests.chaos.test_interruptions import COMMANDS, LSTM
from tests.pipelines.conftest import Project

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def project(tmp_path_factory, forks) -> Project:
    made = Project(tmp_path_factory.mktemp("project"), forks)
    for name in ("prepare/grammar_tiny", "tokenize/grammar_tiny/word"):
        made.succeed(*COMMANDS[name])
    return made


@pytest.mark.parametrize("back", [9, 10**6], ids=["back in time", "back behind the end"])
def test_the_server_dies_in_mid_training(project, tmp_path, back):
    port = free_port()
    server = serve(tmp_path, port)
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "PORT": str(port), "STORE": str(tmp_path)}
    callback = f"+callbacks.outage={{_target_: tests.chaos.outage.Outage, lost: 5, back: {back}}}"
    try:
        done = project.succeed("pretrain", *LSTM, callback, f"system=to_{back}", SERVER=str(server.pid), **address)
        server.wait()
        assert done.stderr.count("MLflow does not answer") == 1, done.stderr
        cell = project.folder / f"outputs/pretrain/grammar_tiny/to_{back}-1"
        if back == 10**6:
            assert read_record(cell)["mlflow_run_id"] is not None  # the run had been created
            server = serve(tmp_path, port)
            assert "sent: 1" in project.succeed("cli.main", "sync", **address).stdout
        client = MlflowClient(address["MLFLOW_TRACKING_URI"])
        (run_,) = client.search_runs(["1"], f"tags.`retable.system` = 'to_{back}'")
        assert run_.info.status == "FINISHED" and run_.info.run_id == read_record(cell)["mlflow_run_id"]
        history = client.get_metric_history(run_.info.run_id, "train/loss")
        curve = [line.split(",") for line in (cell / "curve.csv").read_text().splitlines()]
        losses = [(int(step), float(value)) for step, name, value in curve[1:] if name == "train/loss"]
        assert [point.step for point in history] == [step for step, _ in losses]
        assert [point.value for point in history] == pytest.approx([value for _, value in losses], rel=1e-5)
        assert "metrics.json" in [file.path for file in client.list_artifacts(run_.info.run_id)]
    finally:
        for pid in [server.pid, *map(int, [p.read_text() for p in tmp_path.glob("server.pid")])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
