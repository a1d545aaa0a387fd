"""MLflow's server dies in mid-training; the training does not, and all its points are there once."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from retable.artifacts import read_record
from tests.chaos.outage import serve

pytestmark = pytest.mark.chaos
ROOT = Path(__file__).parent.parent.parent
TINY = ["corpus=grammar_tiny"]
LSTM = [*TINY, "recipe=recurrent/lstm", "model.d_model=16", "batches.batch_size=4", "batches.length=16", "epochs=0.4",
        "checkpoint_every=3", "validations=5"]  # fmt: skip
CELL = "outputs/pretrain/grammar_tiny/lstm-1"


def run(folder: Path, *command: str, **environment: str) -> str:
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}{os.pathsep}{ROOT / 'tests/chaos'}"
    own = {"PYTHONPATH": paths, "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false"}
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, env=os.environ | own | environment,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    run(folder, "pipelines.prepare", *TINY, "corpus.write.words={train: 3000, validation: 600, test: 900}",
        "corpus.write.task_examples={train: 60, validation: 20, test: 40}")  # fmt: skip
    run(folder, "pipelines.encode", *TINY)
    return folder


@pytest.mark.parametrize("back", [9, 10**6], ids=["back in time", "back behind the end"])
def test_the_server_dies_in_mid_training(project, tmp_path, back):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = serve(tmp_path, port)
    address = {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "PORT": str(port), "STORE": str(tmp_path)}
    callback = f"+callbacks.outage={{_target_: outage.Outage, lost: 5, back: {back}}}"
    try:
        said = run(
            project, "pipelines.pretrain", *LSTM, callback, f"system=to_{back}", SERVER=str(server.pid), **address
        )
        server.wait()
        assert said.count("MLflow takes nothing") == 1, said
        cell = project / CELL.replace("lstm-1", f"to_{back}-1")
        if back == 10**6:
            assert read_record(cell)["mlflow_run_id"] is not None  # it was opened
            server = serve(tmp_path, port)
            assert "sent: 1" in run(project, "pipelines.command", "sync", **address)
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
