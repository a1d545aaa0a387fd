"""`dvc repro` on a small study: what runs at first, after an edit that changes no number, and after one that does."""

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.entry import CONF
from tests.pipelines.forking import write_python

ROOT = CONF.parent
STUDY = {"corpus": "grammar_tiny", "systems": [{"of": ["kn3", "kn5"]}],
         "benchmarks": {"perplexity": "all", "phenomena": "all"}}  # fmt: skip
GRAPH = "graph/corpus/grammar_tiny/dvc.yaml"
CELLS = [f"{GRAPH}:evaluate-{system}-1-perplexity-phenomena" for system in ("kn3", "kn5")]


class Repro:
    """A project of its own, whose Python is that of forking.py."""

    def __init__(self, folder: Path, tools: Path, forks: str):
        self.folder, self.python = folder, tools / "python"
        write_python(self.python, forks)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "PATH": path}

    def __call__(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ran(self) -> list[str]:
        """The stages that a `dvc repro` of the evaluations runs."""
        return re.findall(r"Running stage '[^:']+:([\w-]+)'", self("dvc", "repro", *CELLS))

    def to_make(self) -> str:
        """The file that `make repro` hands to DVC; empty where there is nothing to do."""
        return self(str(self.python), "-m", "pipelines.plan", "check", "lineage").strip()

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def repro(tmp_path_factory, forks):
    made = Repro(tmp_path_factory.mktemp("repro"), tmp_path_factory.mktemp("tools"), forks)
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, made.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / ".dvcignore", made.folder / ".dvcignore")
    for path in (made.folder / "conf/study").glob("*.yaml"):
        path.unlink()
    (made.folder / "conf/study/lineage.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    made.edit("conf/corpus/grammar_tiny.yaml", "train: 50000, validation: 5000, test: 20000",
              "train: 3000, validation: 600, test: 900")  # fmt: skip
    made("dvc", "init", "--quiet", "--no-scm")
    made(str(made.python), "-m", "pipelines.plan", "graph")
    return made


def test_only_what_may_change_a_number_runs_again(repro):
    first = ["plan", "prepare", "encode-word", "pretrain-kn3-1", "evaluate-kn3-1-perplexity-phenomena",
             "pretrain-kn5-1", "evaluate-kn5-1-perplexity-phenomena"]  # fmt: skip
    assert sorted(repro.ran()) == sorted(first)
    assert repro.ran() == []
    assert repro.to_make() == "dvc.yaml"
    repro("dvc", "repro")
    assert repro.to_make() == ""
    tables = {path.stem for path in (repro.folder / "results/lineage").glob("*.md")}
    assert {"perplexity", "phenomena-grammar_tiny"} <= tables

    repro.edit("src/retable/models/ngram.py", "class KneserNey(", "# edited\nclass KneserNey(")
    repro.edit("conf/recipe/counted/kn3.yaml", "stage: pretrain", "stage: pretrain  # edited")
    assert repro.ran() == ["plan"]

    repro("dvc", "repro")
    assert repro.to_make() == ""
    (repro.folder / "outputs/evaluate/grammar_tiny/kn3-1-perplexity-phenomena/metrics.json").unlink()
    assert repro.to_make() == "dvc.yaml"
    repro("dvc", "repro")

    repro.edit("conf/recipe/counted/kn5.yaml", "order: 5", "order: 4")
    assert repro.to_make() == "dvc.yaml"
    assert repro.ran() == ["plan", "pretrain-kn5-1", "evaluate-kn5-1-perplexity-phenomena"]


def test_what_is_proved_the_same_is_renewed(repro):
    """A line that changes no number: one cell of each kind runs under both commits, and nothing is made again."""
    (repro.folder / ".gitignore").write_text("outputs/\nwork/\nmlflow.db*\nmlartifacts/\n.dvc/\n", encoding="utf-8")
    for command in (("init", "--quiet"), ("add", "-A"), ("commit", "--quiet", "-m", "before")):
        repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command)
    repro.edit(
        "src/retable/models/ngram.py",
        "class KneserNey(Interpolated):",
        "class KneserNey(Interpolated):\n    edited = 1\n",
    )
    repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-am", "after")
    said = repro(str(repro.python), "-m", "pipelines.prove", "HEAD~1")
    assert said.splitlines() == [
        "same   pretrain/grammar_tiny/kn3-1, for 2: pretrain/grammar_tiny/kn3-1 pretrain/grammar_tiny/kn5-1",
        "same   evaluate/grammar_tiny/kn3-1-perplexity-phenomena, for 2: "
        "evaluate/grammar_tiny/kn3-1-perplexity-phenomena evaluate/grammar_tiny/kn5-1-perplexity-phenomena",
    ]
    assert repro.ran() == ["plan"]
    with (repro.folder / "results/renewals.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["stage"], row["renewed"]) for row in rows] == [("pretrain", "2"), ("evaluate", "2")]
    assert all(row["old_code"] != row["new_code"] and len(row["digest"]) == 64 for row in rows)
