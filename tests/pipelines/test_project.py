"""Test an installed package outside of the checkout: the wheel's files, and studies in separate folders."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from pipelines.config.project import CONF, STUDIES
from pipelines.study import compose
from retable.planning.conf import Conf
from retable.planning.study import expand
from tests.pipelines.conftest import Project
from tests.pipelines.own_package import write_configurations, write_package

ROOT = CONF.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
STUDY_FILES = [path.relative_to(ROOT) for path in STUDIES.glob("*/study.yaml")]
IN_WHEEL = ("conf", "pipelines", "src", *STUDY_FILES, ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore",
            "pyproject.toml", "README.md", "LICENSE")  # fmt: skip


def copied(folder: Path) -> Path:
    """Return the files of the checkout from which the wheel is made, without earlier builds."""
    for name in IN_WHEEL:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info"))
        else:
            shutil.copyfile(source, target)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return the folder into which a wheel of the present code is unpacked."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    source = copied(tmp_path_factory.mktemp("source"))
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index")
    # compiled modules are not needed here; the package is complete without a compiler
    subprocess.run([*command, "--wheel-dir", wheels, source], check=True, env=os.environ | {"CC": "false"})
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


class Installed:
    """A folder in which the package of `site` is used."""

    def __init__(self, folder: Path, site: Path):
        self.folder = folder
        self._environment = os.environ | {"PYTHONPATH": str(site), "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false"}

    def trusts(self, package: str, folder: Path) -> None:
        """Let it find a package in a folder, and trust the package."""
        path = f"{self._environment['PYTHONPATH']}{os.pathsep}{folder}"
        self._environment |= {"PYTHONPATH": path, "RETABLE_PACKAGES": package}

    def __call__(self, *arguments: str, module: str = "pipelines.cli.main") -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=self.folder, env=self._environment, capture_output=True, text=True,
        )  # fmt: skip

    def says(self, *arguments: str, module: str = "pipelines.cli.main") -> str:
        done = self(*arguments, module=module)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ran(self) -> list[str]:
        """Return the stages that `retable repro mine` ran."""
        lines = re.findall(r"^\[ *\d+/\d+\] +[\d.]+ s  (.*)$", self("repro", "mine").stderr, re.MULTILINE)
        return [line for line in lines if not line.endswith("no change")]


@pytest.fixture
def installed(tmp_path, site) -> Installed:
    return Installed(tmp_path, site)


def test_the_wheel_has_every_package():
    found = {".".join(path.parent.relative_to(ROOT / "src").parts) for path in (ROOT / "src").rglob("__init__.py")}
    found |= {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "pipelines").rglob("__init__.py")}
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(found | {"hydra_plugins", "pipelines.template"})


def test_the_wheel_has_every_file(site):
    for folder, ours in (("src/retable", "retable"), ("pipelines", "pipelines"), ("conf", "pipelines/template/conf")):
        files = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()}
        files = {path for path in files if "__pycache__" not in path.parts and path.suffix != ".so"}
        there = {path.relative_to(site / ours) for path in (site / ours).rglob("*") if path.is_file()}
        there = {path for path in there if path.parts[0] != "template" and path.suffix != ".so"}
        assert there == files, folder
    template = site / "pipelines/template"
    assert {path.relative_to(template) for path in template.glob("studies/**/*.*")} == {*STUDY_FILES}
    for name in (".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore"):
        assert (site / "pipelines/template" / name).read_bytes() == (ROOT / name).read_bytes()


@pytest.fixture
def two(tmp_path, forks) -> list[Project]:
    """Return two studies in separate folders, whose systems and corpora have the same names."""
    outside, folders = Project(tmp_path, forks), [tmp_path / name for name in ("one", "two")]
    for folder, other in zip(folders, ("gpt", "lstm"), strict=True):
        outside.succeed("cli.main", "new", folder.name, "corpus=grammar_tiny", f"systems=[kn3,{other}]")
    return [Project(folder, forks) for folder in folders]


def test_studies_that_call_systems_alike_do_not_clash(two):
    """A cell of one study does not belong to the other, which does not know its other systems."""
    (two[0].folder / "outputs/pretrain/grammar_tiny/kn3-1").mkdir(parents=True)
    for study in two:
        assert study.succeed("cli.main", "why", "kn3-1").stdout.splitlines() == [
            "pretrain/grammar_tiny/kn3-1 would run:", "  it has not been made in this project"
        ]  # fmt: skip
    assert not (two[1].folder / "outputs").exists()
    assert two[0].run("cli.main", "why", "lstm-1").returncode == 2


def test_dvc_lists_the_stages_of_the_study_only(two, monkeypatch):
    for study in two:
        params = yaml.safe_load((study.folder / "params.yaml").read_text(encoding="utf-8"))
        cells = {f"{stage}@{name}" for stage, its in params.items() for name in its}
        monkeypatch.chdir(study.folder)
        with Repo() as repo:
            assert {stage.addressing for stage in repo.index.stages} == cells | {"plan", "report"}
            assert {stage.addressing for stage in repo.index.graph} == cells | {"plan", "report"}
            assert {*repo.status()} <= cells | {"plan", "report"}
        assert len(cells) < 20


@pytest.mark.long
def test_without_a_project_the_configurations_are_the_packages(installed):
    said = installed.says("studies")
    named = {line.split()[0] for line in said.splitlines() if not line.startswith(" ")}
    assert named == {path.parent.name for path in STUDIES.glob("*/study.yaml")}
    assert "grammar_tiny" in installed.says("--help", module="pipelines.prepare")
    composed = installed.says("corpus=grammar_tiny", "recipe=counted/kn5", "--cfg=job", module="pipelines.pretrain")
    assert yaml.safe_load(composed)["model"]["order"] == 5
    for said in (("repro", "histry"), ("why", "no-1", "--study", "histry"), ("tables", "histry")):
        done = installed(*said)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not [*installed.folder.iterdir()]


def test_a_folder_with_something_else_is_left_alone(installed):
    (installed.folder / "smoke").mkdir()
    done = installed("graph", "smoke")
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: .*/smoke exists and has no study\.yaml; run the command in another folder\n", done.stderr
    )
    assert [*installed.folder.rglob("*")] == [installed.folder / "smoke"]


def test_a_study_that_comes_into_git_keeps_its_local_settings(installed):
    said = installed("graph", "smoke").stderr
    assert said == f"created {installed.folder / 'smoke'}, a copy of study smoke\n"
    installed.says("--cd", "smoke", "remote", "add", "--local", "ours", "ssh://somewhere", module="dvc")
    subprocess.run(["git", "init", "--quiet"], cwd=installed.folder, check=True)
    installed.says("graph", "smoke")
    assert "ours" in installed.says("--cd", "smoke", "remote", "list", module="dvc")
    assert installed.says("--cd", "smoke", "config", "core.no_scm", module="dvc") == "false\n"


@pytest.mark.parametrize("git", [False, True])
def test_a_study_is_in_its_git_repository_if_there_is_one(installed, git):
    if git:
        subprocess.run(["git", "init", "--quiet"], cwd=installed.folder, check=True)
    installed.says("graph", "smoke")
    study = installed.folder / "smoke"
    assert (study / "study.yaml").read_bytes() == (STUDIES / "smoke/study.yaml").read_bytes()
    assert (study / ".dvc/config.local").exists() is not git
    listed = installed.says("--cd", "smoke", "stage", "list", "--name-only", module="dvc")
    assert {"plan", "report", "pretrain@lstm-1"} <= {*listed.split()}
    if git:
        said = subprocess.run(
            ["git", "status", "--porcelain", "-uall"], cwd=study, check=True, capture_output=True, text=True
        )
        new = {line.removeprefix("?? smoke/") for line in said.stdout.splitlines()}
        assert new == {
            "study.yaml", "params.yaml", "dvc.yaml", ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore",
        }  # fmt: skip


@pytest.mark.long
def test_a_study_is_made_in_a_folder_of_its_own(installed, site):
    installed.says("new", "mine", "corpus=grammar_tiny", "systems=kn5")
    small = (CONF / "corpus/grammar_tiny.yaml").read_text(encoding="utf-8").replace(
        "train: 50000, validation: 5000, test: 20000", "train: 3000, validation: 600, test: 900"
    )  # fmt: skip
    study = installed.folder / "mine"
    (study / "conf/corpus").mkdir(parents=True)
    (study / "conf/corpus/grammar_tiny.yaml").write_text(small, encoding="utf-8")
    assert "pretrain kn5-1" in installed.ran()
    assert "| kn5 " in installed.says("tables", "mine")
    latex = installed.says("tables", "mine", "--latex")
    assert "    kn5 & " in latex and latex.count(r"\begin{table}") == installed.says("tables", "mine").count("### ")
    assert installed.says("repro", "mine").endswith("\n\nNothing to do. The report: mine/results/report.html\n")

    # the installed code has the fingerprints of the checkout, so cells can be shared
    cells = expand(Conf(CONF), "mine", {"corpus": "grammar_tiny", "systems": [{"of": "kn5"}]}).cells
    with compose.composing():
        expected = compose.plan_of(cells["pretrain/grammar_tiny/kn5-1"], cells)
    assert (study / "outputs/plan/pretrain/grammar_tiny/kn5-1.yaml").read_text("utf-8") == expected

    (study / "conf/recipe/counted").mkdir(parents=True)
    recipe = (CONF / "recipe/counted/kn5.yaml").read_text(encoding="utf-8")
    (study / "conf/recipe/counted/kn5.yaml").write_text(recipe.replace("order: 5", "order: 4"), encoding="utf-8")
    said = installed.says("why", "grammar_tiny/kn5-1", "--study", "mine")
    assert said == "pretrain/grammar_tiny/kn5-1 would run:\n  model.order: 5 -> 4\n"
    assert installed.ran() == ["plan", "pretrain kn5-1", "evaluate kn5-1", "report"]

    graph = yaml.safe_load((study / "dvc.yaml").read_text(encoding="utf-8"))
    assert graph["stages"]["plan"]["deps"] == ["conf", "code/pipelines", "code/retable", "study.yaml", "params.yaml"]
    code = site / "retable/models/ngram.py"
    text = code.read_text(encoding="utf-8")
    own, other = "class KneserNey(Interpolated):", "class KneserNey(Interpolated):\n    version = 2\n"
    code.write_text(text.replace(own, other), encoding="utf-8")  # simulates another version
    said = installed.says("why", "grammar_tiny/kn5-1", "--study", "mine").splitlines()
    code.write_text(text, encoding="utf-8")
    assert said[1:] == ["  code: the installed package has changed in definitions that the cell depends on"]


@pytest.mark.long
def test_a_study_of_a_package_of_the_users_own(installed, tmp_path_factory):
    """A model, tokenizer, task and benchmark outside of the wheel are trained, in tables, and loaded; edits have an
    effect.
    """
    package = write_package(tmp_path_factory.mktemp("own"))
    installed.trusts("mypkg", package.parent)
    study = installed.folder / "mine"
    write_configurations(study / "conf")
    small = (CONF / "corpus/grammar_tiny.yaml").read_text(encoding="utf-8").replace(
        "train: 50000, validation: 5000, test: 20000", "train: 3000, validation: 600, test: 900"
    )  # fmt: skip
    (study / "conf/corpus").mkdir()
    (study / "conf/corpus/grammar_tiny.yaml").write_text(small, encoding="utf-8")
    said = {
        "corpus": "grammar_tiny",
        "systems": [
            {"of": "running_mean", "tokenizer": "folded"},
            {"of": "kn3"},
            {"of": "bilstm", "task": "backwards", "tokenizer": "word", "set": {"epochs": 0.2}},
        ],
        "benchmarks": {"surprise": "running_mean", "perplexity": "kn3"},
    }
    (study / "study.yaml").write_text(yaml.dump(said), encoding="utf-8")
    assert {"tokenize folded", "pretrain running_mean-1", "from_scratch backwards-bilstm-1"} <= {*installed.ran()}
    assert "running_mean" in installed.says("tables", "mine")
    cell = "mine/outputs/pretrain/grammar_tiny/running_mean-1"
    assert "a b" in installed.says("score", cell, "a b")
    assert installed.says("repro", "mine").endswith("\n\nNothing to do. The report: mine/results/report.html\n")

    models = package / "models.py"
    text = models.read_text(encoding="utf-8")
    models.write_text(text.replace("B batch, T time", "B batches, T times"), encoding="utf-8")
    assert installed.ran() == ["plan"]
    models.write_text(text.replace("return sums / counts", "return 2 * sums / counts"), encoding="utf-8")
    ran = {"plan", "pretrain running_mean-1", "evaluate running_mean-1", "report"}
    assert {*installed.ran()} == ran

    installed.trusts("other", package.parent)
    for command in (("score", cell, "a b"), ("repro", "mine")):
        done = installed(*command)
        assert done.returncode == 2 and "package mypkg is not trusted" in done.stderr, done.stderr


@pytest.mark.long
def test_an_experiment_is_planned_and_run_in_a_copy_of_what_git_tracks(tmp_path):
    """The copy has no links to the code, so the page on DVC adds them. The study was never made before."""
    own = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    own |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    folder = tmp_path / "mine"

    def run(*command: str, where: Path = tmp_path) -> str:
        done = subprocess.run(command, cwd=where, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run("git", "init", "--quiet")
    run(sys.executable, "-m", "pipelines.cli.main", "new", "mine", "corpus=grammar_tiny", "systems=kn3")
    run("git", "add", "mine")
    run("git", "commit", "--quiet", "--message", "A study")
    page = (ROOT / "docs/howto/dvc.md").read_text(encoding="utf-8")
    (dry,) = re.findall(r"^dvc exp run (--dry .*?) -S ", page, re.MULTILINE)
    said = run(
        sys.executable, "-m", "dvc", "exp", "run", *dry.split(), "-S", "+pretrain.kn3-1.model.order=2", where=folder
    )
    assert "Running stage 'plan'" in said and "ERROR" not in said
    assert not (folder / "outputs").exists()
