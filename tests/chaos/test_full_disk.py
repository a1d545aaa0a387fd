"""Test stages whose disk becomes full at a random moment.

The command prints a one-line error and loses no earlier file. When the disk has room again, the same command finishes
with the same bytes. CHAOS_SEED chooses other moments; CHAOS_FULL is the number of moments over all stages.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.chaos.elsewhere import bytes_of
from tests.pipelines.conftest import SMALL_CORPUS, Project

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="only root can mount a disk"),
]
SEED, TIMES = int(os.environ.get("CHAOS_SEED", 1)), int(os.environ.get("CHAOS_FULL", 8))
DISK, BLOCK = 64 << 20, 4096  # sizes in bytes
TINY = "corpus=grammar_tiny"
STAGES = [
    ["prepare", *SMALL_CORPUS],
    ["tokenize", TINY],
    ["pretrain", TINY, "recipe=counted/kn5"],
    ["pretrain", TINY, "recipe=recurrent/lstm", "model.d_model=16", "batches.batch_size=4", "batches.length=16",
     "epochs=0.4", "checkpoint_every=3", "validations=5"],
]  # fmt: skip


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """Return a folder on a file system of DISK bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # MLflow's client has the store open


def leave(room: int, folder: Path) -> Path:
    """Fill the disk of `folder` until only this many bytes are free."""
    there = os.statvfs(folder)
    filler = folder / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, there.f_bavail * there.f_frsize - room // BLOCK * BLOCK)
    return filler


def cells(folder: Path) -> dict[str, str]:
    return bytes_of(folder, "outputs/**/*")


def test_a_full_disk_costs_no_cell_and_no_step(disk, tmp_path, forks):
    draw, undisturbed, project = random.Random(SEED), Project(tmp_path / "whole", forks), Project(disk, forks)
    undisturbed.folder.mkdir()
    full = 0
    for number, stage in enumerate(STAGES):
        before = size(undisturbed.folder)
        undisturbed.succeed(*stage)
        needed = size(undisturbed.folder) - before
        for _ in range(sum(n % len(STAGES) == number for n in range(TIMES))):
            there, room = cells(disk), draw.randrange(needed)
            filler = leave(room, disk)
            done = project.run(*stage)
            print(f"{room} bytes left for {' '.join(stage)[:60]}: {done.returncode}")
            filler.unlink()
            assert "Traceback" not in done.stderr, done.stderr
            if done.returncode:
                full += 1
                errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
                assert done.returncode == 2 and len(errors) == 1, done.stderr
                assert "disk is full; free some space and run this again" in errors[0]
            assert there.items() <= cells(disk).items()
        project.succeed(*stage)
        assert cells(disk) == cells(undisturbed.folder)
        left = {str(path.relative_to(disk / "work")) for path in (disk / "work").rglob("*") if path.is_file()}
        assert {path for path in left if not path.startswith(("log/", "made/", "measured/"))} <= {"mlflow/lock"}
    assert full > 0
    statuses = [run.info.status for run in runs(disk)]
    assert statuses == ["FINISHED"] * len(STAGES)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def runs(folder: Path):
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    return client.search_runs([each.experiment_id for each in client.search_experiments()])
