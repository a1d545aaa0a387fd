"""Test that an environment of another folder, and modules of another place, are refused: their code would run."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from pipelines.cli.main import main
from pipelines.config.project import (
    CHECKOUT,
    DEFAULT,
    enter_project,
    folder_of,
    require_own_checkout,
    require_project_folder,
)
from pipelines.evaluate import evaluate
from retable.core.artifacts import root
from retable.core.errors import UsageError


@pytest.fixture
def copied(tmp_path) -> Path:
    code = ("src/retable/__init__.py", "pipelines/__init__.py")
    for name in (*code, "docs/index.md", "studies/history/study.yaml"):
        (path := tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "copy"


@pytest.mark.parametrize("folder", [".", "docs", "studies/history"])
def test_another_checkouts_environment_is_refused(copied, monkeypatch, folder):
    monkeypatch.chdir(copied / folder)
    for refused in (require_own_checkout, enter_project):
        with pytest.raises(UsageError, match=f"this environment runs the code in .*run `make env` in {copied}"):
            refused()


def test_its_own_is_not(monkeypatch, tmp_path):
    for folder in (CHECKOUT, CHECKOUT / "docs", tmp_path):
        monkeypatch.chdir(folder)
        require_own_checkout()


@pytest.mark.parametrize(("made_in", "left"), [("/another/folder", False), ("", True), ("{own}", True)])
def test_make_removes_the_environment_of_another_folder(tmp_path, made_in, left):
    (tmp_path / "Makefile").symlink_to(CHECKOUT / "Makefile")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/installed").write_text(made_in.format(own=tmp_path), encoding="utf-8")
    subprocess.run(["make", "help"], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / ".venv").exists() == left


@pytest.mark.parametrize("module", ["pipelines.prepare", "pipelines.plan", "pipelines.cli.main"])
def test_an_environment_without_the_package_has_one_line(module, tmp_path):
    """Such as the environment of a moved checkout, whose path file names the old folder."""
    own = os.environ | {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    (tmp_path / "retable").mkdir()  # a folder without code
    for path in (own["PYTHONPATH"], f"{own['PYTHONPATH']}{os.pathsep}{tmp_path}"):
        command = [sys.executable, "-S", "-m", module]
        done = subprocess.run(command, cwd=CHECKOUT, env=own | {"PYTHONPATH": path}, capture_output=True, text=True)
        line = f"run `make env` in {CHECKOUT}, then use {CHECKOUT / '.venv/bin'}\n"
        assert (done.returncode, done.stdout, done.stderr) == (
            2, "", f"error: this environment has no package retable; {line}",
        )  # fmt: skip


def test_next_to_the_checkout_the_package_is_imported_and_not_the_folder(tmp_path):
    (checkout := tmp_path / "work/retable").parent.mkdir()
    (checkout / "src").mkdir(parents=True)
    (checkout / "src/retable").symlink_to(CHECKOUT / "src/retable")
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        (checkout / name).symlink_to(CHECKOUT / name)
    venv.create(checkout / ".venv", symlinks=True)
    planned = subprocess.run(["make", "-n", "env"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    (recipe,) = (line for line in planned.splitlines() if "SOURCE_ON_PATH" in line)
    makefile = checkout / "one.mk"
    makefile.write_text(f"include Makefile\none:\n\t{recipe.replace('$', '$$')}\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}

    def found() -> str:
        command = [checkout / ".venv/bin/python", "-c", "import retable; print(retable.__file__)"]
        return subprocess.run(
            command, cwd=checkout.parent, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert found() == "None"  # a namespace package
    subprocess.run(["make", "-f", "one.mk", "one"], cwd=checkout, env=environment, capture_output=True, check=True)
    assert found() == str(checkout / "src/retable/__init__.py")


@pytest.mark.parametrize("command", [["retable", "show", "kn5-1"], ["evaluate", "cell=grammar/kn5-1"]])
def test_inside_a_project_its_folder_is_named_and_nothing_is_left(tmp_path, monkeypatch, capsys, command):
    """The folder's name is that of git and DVC; `retable repro` and other commands find a study by name from any
    folder.
    """
    (tmp_path / "study.yaml").touch()
    (below := tmp_path / "notes/drafts").mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main() if command[0] == "retable" else evaluate()
    assert stopped.value.code == 2
    assert (
        capsys.readouterr().err == f"error: {below} is inside the project {tmp_path}; run the command in {tmp_path}\n"
    )
    assert [*below.iterdir()] == []
    monkeypatch.chdir(tmp_path)
    require_project_folder()


def test_a_study_is_found_by_its_name_from_any_folder_in_it(tmp_path, monkeypatch):
    for name in ("mine", DEFAULT):
        (below := tmp_path / name / "notes/drafts").mkdir(parents=True)
        (tmp_path / name / "study.yaml").touch()
        for folder in (tmp_path, tmp_path / name, below):
            monkeypatch.chdir(folder)
            assert folder_of(name) == tmp_path / name
    with pytest.raises(UsageError, match=r"no study .other."):
        folder_of("other")


@pytest.mark.parametrize("from_", [".", "below", "elsewhere"])
def test_a_command_that_writes_elsewhere_names_the_folder(tmp_path, monkeypatch, capsys, from_):
    """The command prints one line if the study is not in the working folder; commands that only read print none."""
    for name in ("mine", "mine/below", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine/study.yaml").touch()
    place = {".": tmp_path, "below": tmp_path / "mine/below", "elsewhere": tmp_path / "elsewhere"}[from_]
    study = "mine" if from_ != "elsewhere" else str(tmp_path / "mine")
    for shown in (True, False):
        monkeypatch.chdir(place)
        enter_project(study, show_folder=shown)
        assert Path.cwd() == tmp_path / "mine"
        line = f"in {tmp_path / 'mine'}\n" if shown and from_ != "." else ""
        assert capsys.readouterr().err == line


def started(folder: Path, module: str, path: str = "", **environment: str) -> subprocess.CompletedProcess:
    own = os.pathsep.join(filter(None, [path, str(CHECKOUT / "src"), str(CHECKOUT)]))
    command = (
        [sys.executable, "-c", "import pipelines; print('runs')"] if not module else [sys.executable, "-m", module]
    )
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": own} | environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", ["yaml.py", "torch/__init__.py", "hydra/__init__.py", "retable/__init__.py"])
def test_a_module_that_hides_a_package_is_refused(tmp_path, name):
    (path := tmp_path / name).parent.mkdir(exist_ok=True)
    path.touch()
    hidden = path if name.endswith("yaml.py") else path.parent
    line = f"error: {hidden} hides the package {hidden.stem}; rename it, or take {tmp_path} out of PYTHONPATH\n"
    for folder, module, given in ((CHECKOUT, "", str(tmp_path)), (tmp_path, "pipelines.plan", "")):
        done = started(folder, module, given)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_modules_that_hide_nothing_are_not(tmp_path):
    files = (
        "mine.py",
        "yaml/notes.txt",
        "other/__init__.py",
        "installed/yaml/__init__.py",
        "installed/x.dist-info/RECORD",
        "another/retable/__init__.py",  # Python searches it after this checkout
        "another/pipelines/__init__.py",
    )
    for name in files:
        (path := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    own = (CHECKOUT / "src", CHECKOUT)
    given = os.pathsep.join(str(tmp_path / each) for each in ("", "installed", "nothing", *own, "another"))
    assert started(tmp_path, "", given).stdout == "runs\n"


@pytest.mark.parametrize("place", ["nothing", "file", "nothing/below"])
def test_a_dvc_root_that_is_no_folder_is_refused_and_not_made(tmp_path, monkeypatch, place):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / place))
    for refused in (require_own_checkout, enter_project, root):
        with pytest.raises(UsageError, match=f"^DVC_ROOT={tmp_path / place} is not a folder; unset DVC_ROOT"):
            refused()
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
