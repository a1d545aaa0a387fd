"""A callback that kills MLflow's server in mid-training, and starts it again."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import lightning as L


def serve(folder: Path, port: int) -> subprocess.Popen:
    """MLflow's server of the store in `folder`, once it listens."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{folder / 'store.db'}",
               "--artifacts-destination", str(folder / "artifacts")]  # fmt: skip
    with (folder / "server.txt").open("a") as said:
        server = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    while server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
    raise RuntimeError((folder / "server.txt").read_text())


class Outage(L.Callback):
    """Of the server SERVER, its process group, from the step `lost` to the step `back`, if that comes."""

    def __init__(self, lost: int, back: int):
        self._lost, self._back = lost, back

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self._lost:
            os.killpg(int(os.environ["SERVER"]), signal.SIGKILL)
        if trainer.global_step == self._back:
            server = serve(Path(os.environ["STORE"]), int(os.environ["PORT"]))
            Path(os.environ["STORE"], "server.pid").write_text(str(server.pid))
