import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATHS = ROOT / "src", ROOT, ROOT / "tests/pipelines"  # this tree's code, even where another one is installed

SMALL_CORPUS = [
    "corpus=grammar_tiny",
    "corpus.write.words={train: 3000, validation: 600, test: 900}",
    "corpus.write.task_examples={train: 60, validation: 20, test: 40}",
]


class Project:
    """An empty folder that stages run in, as the project's own folder would be."""

    def __init__(self, folder: Path):
        self.folder = folder

    def run(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        """Run a stage as a user would: its own process, what it prints captured."""
        return subprocess.run(
            [sys.executable, "-m", f"pipelines.{stage}", *overrides],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, PATHS))} | environment,
            capture_output=True,
            text=True,
        )

    def succeed(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        done = self.run(stage, *overrides, **environment)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="session")
def project(tmp_path_factory) -> Project:
    """A project whose grammar_tiny corpus is a few thousand words, prepared and tokenized."""
    made = Project(tmp_path_factory.mktemp("project"))
    made.succeed("prepare", *SMALL_CORPUS)
    made.succeed("tokenize", "corpus=grammar_tiny")
    return made


@pytest.fixture
def bare_project(tmp_path) -> Project:
    """A project that holds nothing but the source of the embedded corpus."""
    (tmp_path / "src").symlink_to(ROOT / "src")
    return Project(tmp_path)
