"""Stages on the machines of a cluster, and beside it."""

import os
import subprocess
import sys
from pathlib import Path

from retable.digests import digest

ROOT = Path(__file__).parent.parent.parent
OWN = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
       "OMP_NUM_THREADS": "1"}  # fmt: skip


def run(folder: Path, stage: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"pipelines.{stage}", *arguments],
        cwd=folder, env=os.environ | OWN | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def bytes_of(folder: Path, *patterns: str) -> dict[str, str]:
    """The digests of files, but for those that say when and where each was made."""
    files = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return {
        str(path.relative_to(folder)): digest(path)
        for path in files
        if path.is_file() and not path.name.endswith(".record.json")
    }
