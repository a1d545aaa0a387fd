"""Run a study on an engine (such as Ray or Slurm), and compare it with the same study on one machine."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from retable.core.digests import digest
from retable.core.stages import module_of
from tests.conftest import last_of_each

ROOT = Path(__file__).parent.parent.parent
OWN = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false",
       "OMP_NUM_THREADS": "1"}  # fmt: skip


def run(folder: Path, stage: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module_of(stage), *last_of_each(arguments)],
        cwd=folder, env=os.environ | OWN | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def bytes_of(folder: Path, *patterns: str) -> dict[str, str]:
    """Return the digests of files, without the files that record when and where each was made."""
    files = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return {
        str(path.relative_to(folder)): digest(path)
        for path in files
        if path.is_file() and not path.name.endswith(".record.json")
    }


def study_on(name: str, folder: Path) -> tuple[dict[str, str], Any]:
    """Make a study on an engine. Return the digests of its tables and weights, and DVC's lock."""
    study = {
        "corpus": "grammar_tiny", "systems": [{"of": ["kn3", "kn5", "elman"]}], "benchmarks": {"perplexity": "all"},
    }  # fmt: skip
    folder.mkdir()
    subprocess.run(["cp", "-r", *(str(ROOT / each) for each in ("conf", "pipelines", "src", ".dvcignore")), "."],
                   cwd=folder, check=True)  # fmt: skip
    (folder / "studies/history").mkdir(parents=True)
    (folder / "studies/history/study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet", "--no-scm"], cwd=folder, check=True)
    said = run(
        folder, "cli.main", "repro", "history", "--engine", name, PYTHONPATH=f"{folder / 'src'}{os.pathsep}{folder}"
    )
    assert "evaluate elman-1\n" in said
    made = bytes_of(folder, "studies/history/results/*.md", "outputs/*/*/*/*.safetensors")
    assert made
    return made, yaml.safe_load((folder / "dvc.lock").read_text(encoding="utf-8"))
