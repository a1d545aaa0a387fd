"""Callbacks that stop MLflow's server or its database during training and restore it, or that pause training."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import lightning as L

from tests.chaos.servers import listens


def serve(folder: Path, port: int) -> subprocess.Popen:
    """Start MLflow's server on the store in `folder`. Return its process when it listens."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{folder / 'store.db'}",
               "--artifacts-destination", str(folder / "artifacts")]  # fmt: skip
    with (folder / "server.txt").open("a") as said:
        server = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    while server.poll() is None:
        if listens(port):
            return server
        time.sleep(0.1)
    raise RuntimeError((folder / "server.txt").read_text())


class Outage(L.Callback):
    """Kills the server (process group SERVER) at step `lost`, and starts it again at step `back`, if training reaches
    it.
    """

    def __init__(self, lost: int, back: int):
        self._lost, self._back = lost, back

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self._lost:
            os.killpg(int(os.environ["SERVER"]), signal.SIGKILL)
        if trainer.global_step == self._back:
            server = serve(Path(os.environ["STORE"]), int(os.environ["PORT"]))
            Path(os.environ["STORE"], "server.pid").write_text(str(server.pid))


class Failing(L.Callback):
    """From step `lost` to step `back`, makes the database `store` unusable: another process locks it, or it is moved
    away, or overwritten.
    """

    def __init__(self, store: str, how: str, lost: int, back: int):
        self._store, self._how, self._lost, self._back = Path(store), how, lost, back

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        away = self._store.with_name("away.db")
        if trainer.global_step == self._lost:
            self._whole = self._store.read_bytes()
            if self._how == "locked":
                self._other = lock(self._store)
            elif self._how == "moved":
                self._store.rename(away)
            else:
                self._store.write_bytes(b"no database" * 1000)
        if trainer.global_step == self._back:
            if self._how == "locked":
                self._other.communicate()
            elif self._how == "moved":
                away.rename(self._store)
            else:
                self._store.write_bytes(self._whole)


class Pause(L.Callback):
    """Pauses training for `seconds` at `step`, and creates the file `begun` when the pause begins."""

    def __init__(self, step: int, seconds: float, begun: str):
        self._step, self._seconds, self._begun = step, seconds, Path(begun)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == self._step:
            self._begun.touch()
            time.sleep(self._seconds)


def lock(store: Path) -> subprocess.Popen:
    """Start a process that locks a database until its standard input is closed."""
    program = "import sqlite3, sys; store = sqlite3.connect(sys.argv[1]); store.execute('begin exclusive'); " \
              "print(flush=True); sys.stdin.read()"  # fmt: skip
    command = [sys.executable, "-c", program, str(store)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    return other
