"""Test a user's models, tokenizers, tasks and benchmarks in a separate package: they are used only if it is trusted."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml

import retable
from pipelines.config import project as places
from pipelines.config.project import CONF
from pipelines.study import compose, dvc_project
from pipelines.study.code_reached import code_of
from retable.core.errors import UsageError
from retable.core.settings import resolve
from retable.planning.conf import Conf
from retable.planning.study import expand
from tests.pipelines.conftest import ENVIRONMENT
from tests.pipelines.own_package import imported, write_configurations, write_package

# The end of every refusal.
REFUSED = "and package mypkg is not trusted; if you trust its code, set RETABLE_PACKAGES=mypkg"
MINE = "--config-dir=packages"
PRETRAIN = ("pretrain", MINE, "corpus=grammar_tiny", "recipe=recurrent/running_mean", "+max_steps=3")
TOKENIZE = ("tokenize", MINE, "corpus=grammar_tiny", "tokenizer=folded")
FINETUNE = ("finetune", MINE, "corpus=grammar_tiny", "task=backwards", "recipe=encoders/bilstm", "model.d_embedding=8",
            "model.d_model=8", "epochs=0.2")  # fmt: skip
EVALUATE = ("evaluate", MINE, "corpus=grammar_tiny", "cell=grammar_tiny/running_mean-1", "benchmark=surprise")
STUDY = {
    "corpus": "grammar_tiny",
    "systems": [{"of": "running_mean", "tokenizer": "folded"}, {"of": "kn3"}, {"of": "bilstm", "task": "backwards"}],
    "benchmarks": {"surprise": "running_mean"},
}


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    return write_package(tmp_path_factory.mktemp("site"))


def finds(monkeypatch, package: Path) -> None:
    """Let this process import the package from this folder."""
    monkeypatch.syspath_prepend(str(package.parent))
    for name in [name for name in sys.modules if name.partition(".")[0] == "mypkg"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def own(project, package):
    """Return a project with configurations of the package's classes, and the settings of a process that finds the
    package.
    """
    project = project.forked
    write_configurations(project.folder / "packages")
    path = f"{package.parent}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"
    project.finds = {"PYTHONPATH": path, "XDG_CONFIG_HOME": str(project.folder / "none")}
    project.trusts = project.finds | {"RETABLE_PACKAGES": "mypkg"}
    return project


@pytest.mark.parametrize("command", [
    PRETRAIN,
    *(pytest.param(command, marks=pytest.mark.long) for command in (TOKENIZE, FINETUNE)),
], ids=lambda command: command[0])  # fmt: skip
def test_what_is_not_trusted_is_refused_and_not_imported(own, package, command):
    imported(package)
    for environment in (own.finds, own.finds | {"RETABLE_PACKAGES": "mypkg2, other"}):
        done = own.run(*command, f"out=refused/{command[0]}-1", **environment)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert re.search(r"error: [\w.]+: _target_=mypkg\.\w+\.\w+ is not in retable\.\w+\.\*, and ", done.stderr)
        assert done.stderr.strip().endswith(REFUSED if environment is own.finds else "PACKAGES=mypkg2,other,mypkg")
    assert not imported(package) and not [*own.folder.glob("outputs/*/refused")]


@pytest.mark.parametrize("setting", [
    "+RETABLE_PACKAGES=mypkg", "+hydra.job.env_set.RETABLE_PACKAGES=mypkg",
    "+hydra.job.env_set.XDG_CONFIG_HOME=${hydra:runtime.cwd}/packages/xdg",
])  # fmt: skip
def test_a_configuration_trusts_nothing(own, package, setting):
    (file := own.folder / "packages/xdg/retable/packages").parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mypkg\n")
    imported(package)
    done = own.run(*PRETRAIN, "out=refused/a-1", setting, **own.finds)
    assert done.returncode == 2 and not imported(package), done.stderr
    assert "trust" in done.stderr or "RETABLE_PACKAGES" in done.stderr


def test_a_plan_trusts_nothing(own, package):
    imported(package)
    settings = {"--trust": "mypkg", "corpus": "grammar_tiny", "model._target_": "mypkg.models.RunningMean"}
    (own.folder / "evil.yaml").write_text(yaml.dump({"settings": settings}))
    done = own.run("pretrain", "@evil.yaml", "recipe=recurrent/lstm", **own.finds)
    assert done.returncode == 2 and not imported(package), done.stderr


def test_it_is_trusted_on_the_command_line_and_in_the_users_file(own, package):
    (file := own.folder / "user/retable/packages").parent.mkdir(parents=True)
    file.write_text("# of our group\nmypkg  # models\n\nnot_installed\n")
    own.succeed(*TOKENIZE, "--trust=mypkg", "out=way/a", **own.finds)
    own.succeed(*TOKENIZE, "out=way/b", **own.finds | {"XDG_CONFIG_HOME": str(own.folder / "user")})
    a, b = (own.folder / f"outputs/tokenize/way/{name}/tokenizer.json" for name in "ab")
    assert a.read_bytes() == b.read_bytes() and imported(package)


def test_cells_are_loaded_only_where_it_is_trusted(own, package, monkeypatch):
    for stage in (TOKENIZE, PRETRAIN, FINETUNE, EVALUATE):
        own.succeed(*stage, **own.trusts)
    outputs = own.folder / "outputs"
    cell, task = (
        outputs / "pretrain/grammar_tiny/running_mean-1",
        outputs / "from_scratch/grammar_tiny/backwards-bilstm-1",
    )
    for command in (("show", str(cell)), ("score", str(cell), "a b"), ("predict", str(task), "--text", "a b")):
        imported(package)
        done = own.run(str(CONF.parent / "pipelines/cli/main.py"), *command, **own.finds)
        assert done.returncode == 2 and done.stderr.strip().endswith(REFUSED) and not imported(package), done.stderr
        own.succeed(str(CONF.parent / "pipelines/cli/main.py"), "--trust", "mypkg", *command, **own.finds)
    with pytest.raises(UsageError, match="package mypkg is not trusted"):
        retable.load(cell)
    finds(monkeypatch, package)
    monkeypatch.setenv("RETABLE_PACKAGES", "mypkg")
    assert retable.load(cell).score(["a b"])[0].log_prob < 0
    label = retable.load(task).classify(["a b"])[0]
    assert label in ("negative", "positive")
    metrics = json.loads((outputs / "evaluate/grammar_tiny/running_mean-1/metrics.json").read_text())
    assert "test/perplexity_word" in metrics


@pytest.fixture
def study(package, tmp_path, monkeypatch):
    """Return the folder of a study that names the package's classes, and a copy of the package for edits."""
    folder = tmp_path / "study"
    write_configurations(folder / "conf")
    (folder / "study.yaml").write_text(yaml.dump(STUDY))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    copy = write_package(tmp_path / "site")
    finds(monkeypatch, copy)
    monkeypatch.setenv("RETABLE_PACKAGES", "mypkg,not_installed")
    return copy


def plans() -> dict[str, str]:
    cells = expand(Conf(CONF, Path("conf").absolute()), "study", STUDY).cells
    code_of.cache_clear()
    with compose.composing():
        return {place: compose.plan_of(cell, cells) for place, cell in cells.items()}


def stale(before: dict[str, str], file: Path, old: str, new: str) -> set[str]:
    """Return the cells whose plans differ from those of `before` after an edit."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    after = plans()
    file.write_text(text)
    return {place.rpartition("/")[2] for place in before if before[place] != after[place]}


@pytest.mark.long
def test_its_code_counts_in_plans(study, monkeypatch):
    mean, before = {"running_mean-1"}, plans()
    assert stale(before, study / "models.py", "B batch, T time", "B batches, T times") == set()
    assert stale(before, study / "models.py", "super().__init__()", "super().__init__()  # first") == set()
    assert stale(before, study / "models.py", "return sums / counts", "return 2 * sums / counts") == mean
    assert stale(before, study / "base.py", "reversed(", "sorted(") == {
        "backwards-bilstm-1"
    }  # in a module that is imported relatively
    assert stale(before, study / "chars.py", "line.lower()", "line.upper()") == {"folded", *mean}
    monkeypatch.delenv("RETABLE_PACKAGES")
    with pytest.raises(UsageError, match="package mypkg is not trusted"):
        plans()


def test_a_study_without_its_classes_has_the_same_plans(study, monkeypatch):
    def plan():
        cells = expand(Conf(CONF), "study", {"corpus": "grammar_tiny", "systems": [{"of": ["kn3", "lstm"]}]}).cells
        with compose.composing():
            return {place: compose.plan_of(cell, cells) for place, cell in cells.items()}

    before = plan()
    monkeypatch.delenv("RETABLE_PACKAGES")
    assert plan() == before


def test_dvc_sees_edits_of_the_package(study, monkeypatch):
    folder = Path.cwd()
    places.complete(folder)
    dvc_project.graph()
    deps = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]["plan"]["deps"]
    assert deps == ["conf", "code/conf", "code/pipelines", "code/retable", "code/mypkg", "study.yaml", "params.yaml"]
    assert Path("code/mypkg").resolve() == study
    monkeypatch.delenv("RETABLE_PACKAGES")
    assert "code/mypkg" not in places.code_of_plans(folder)
    for path in Path("conf").rglob("*.yaml"):
        path.unlink()
    monkeypatch.setenv("RETABLE_PACKAGES", "mypkg")
    assert "code/mypkg" not in places.code_of_plans(folder)  # no file names the package


@pytest.mark.parametrize("name", ["os", "retable", "pipelines", "conf", "my.pkg", "../x", "__main__", "my-pkg"])
def test_names_that_can_not_be_trusted(monkeypatch, name):
    monkeypatch.setenv("RETABLE_PACKAGES", name)
    with pytest.raises(UsageError, match="is not the name of a package outside Retable and Python; remove it"):
        resolve("mypkg.models.RunningMean")


def test_what_a_trusted_package_only_imports_is_not_its_own(study):
    (study / "borrowed.py").write_text("from os import system\nfrom shutil import rmtree\n")
    for name in ("system", "rmtree", "_hidden", "absent"):
        with pytest.raises(UsageError, match=f"there is no mypkg.borrowed.{name}"):
            resolve(f"mypkg.borrowed.{name}")
