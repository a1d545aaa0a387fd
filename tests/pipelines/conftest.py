import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipelines.forks import ask, serving

ROOT = Path(__file__).parent.parent.parent
PATHS = ROOT / "src", ROOT, ROOT / "tests/pipelines"  # this tree's code, even where another one is installed
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(map(str, PATHS)), "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false"}

SMALL_CORPUS = [
    "corpus=grammar_tiny",
    "corpus.write.words={train: 3000, validation: 600, test: 900}",
    "corpus.write.task_examples={train: 60, validation: 20, test: 40}",
]


class Project:
    """An empty folder that stages run in, as the project's own folder would be. `forks` starts their processes."""

    def __init__(self, folder: Path, forks: str):
        self.folder, self._forks = folder, forks

    def run(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        """Run a stage, or a script by its path, as a user would: its own process, what it prints captured."""
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            module = stage if stage.endswith(".py") else f"pipelines.{stage}"
            code = ask(
                self._forks, module, overrides, str(self.folder), os.environ | ENVIRONMENT | environment,
                out.name, err.name,
            )  # fmt: skip
            return subprocess.CompletedProcess([stage, *overrides], code, out.read(), err.read())

    def start(self, stage: str, *overrides: str) -> subprocess.CompletedProcess:
        """As `run`, but without a fork, by Python itself: seconds more."""
        return subprocess.run(
            [sys.executable, "-m", f"pipelines.{stage}", *overrides],
            cwd=self.folder, env=os.environ | ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip

    def succeed(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        done = self.run(stage, *overrides, **environment)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="session")
def forks():
    """The address of the process that pipelines/forks.py describes."""
    with serving() as address:
        yield address


@pytest.fixture(scope="session")
def project(tmp_path_factory, forks) -> Project:
    """A project whose grammar_tiny corpus is a few thousand words, prepared and tokenized."""
    made = Project(tmp_path_factory.mktemp("project"), forks)
    made.succeed("prepare", *SMALL_CORPUS)
    made.succeed("encode", "corpus=grammar_tiny")
    return made


@pytest.fixture
def bare_project(tmp_path, forks) -> Project:
    """A project that holds nothing but the source of the embedded corpus."""
    (tmp_path / "src").symlink_to(ROOT / "src")
    return Project(tmp_path, forks)
