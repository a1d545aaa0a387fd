"""Test what may be replaced and where, on one mount only, and what runs without programs that are not installed."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import altair as alt
import pandas as pd
import pytest
import torch
from dvc.repo import Repo

from pipelines.config import project
from pipelines.executors import on_ray, on_slurm
from retable.core.artifacts import git_state, remote
from retable.core.errors import UsageError
from retable.core.publishing import refuse_all_but_a_report, replace, require_one_mount
from retable.nn import fused
from retable.reporting.changes import tables_at
from retable.reporting.figures import write_figure

ROOT = project.CONF.parent


def report(folder):
    folder.mkdir(parents=True)
    for name in ("report.md", "metrics.json", "metrics.csv", "lm.csv", "lm.md"):
        (folder / name).write_text(name)
    figure = alt.Chart(pd.DataFrame({"x": [1.0]})).mark_point().encode(x="x:Q")
    write_figure(figure, folder / "lm-ptb.svg")
    return folder


FOREIGN = ["thesis.tex", "other/x", "notes", "model.safetensors", ".git/HEAD"]
FOREIGN += ["thesis.md", "mine.csv", "drawn.svg", "slides.html", "other.json", "lm.md/x"]  # suffixes of a report


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_with_another_file_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    refuse_all_but_a_report(tmp_path / "empty")
    (tmp_path / "empty/metrics.json").write_text("{}")
    with pytest.raises(UsageError, match=r"empty is not a report and cannot be replaced by a report; move the folder"):
        refuse_all_but_a_report(tmp_path / "empty")
    out = report(tmp_path / "results")
    refuse_all_but_a_report(out)
    if "/" in name:
        (out / name).parent.unlink(missing_ok=True)
        (out / name).parent.mkdir()
    (out / name).write_text("kept")
    with pytest.raises(UsageError, match=f"{name.partition('/')[0]} is not part of a report.*move that file"):
        refuse_all_but_a_report(out)
    assert (out / name).read_text() == "kept"


def test_a_link_is_refused_and_breaks_no_later_report(tmp_path):
    out = tmp_path / "results"
    out.symlink_to(report(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="results is a link"):
        refuse_all_but_a_report(out)
    assert out.is_symlink() and (tmp_path / "elsewhere/report.md").exists()
    aside = tmp_path / "aside"
    for path in (aside, tmp_path / "aside.old"):  # names from an earlier version
        path.symlink_to(tmp_path / "elsewhere")
    out.unlink()
    report(out)
    with replace(out, tmp_path / "begun", aside) as begun:
        (begun / "report.md").write_text("new")
    assert [each.name for each in out.iterdir()] == ["report.md"]
    assert (tmp_path / "elsewhere/report.md").exists() and not aside.is_symlink()


def test_a_corpus_is_written_by_a_writer_of_corpora(tmp_path):
    from typing import get_type_hints

    from pipelines.config.schema import STAGES
    from retable.core.settings import SettingError, check_all

    schema = get_type_hints(STAGES["prepare"], include_extras=True)
    with pytest.raises(SettingError, match=r"corpus\.write: _target_=retable\.core\.publishing\.remove_empty is not"):
        check_all({"corpus": {"write": {"_target_": "retable.core.publishing.remove_empty"}}}, schema, ())


def test_two_mounts_are_told_before_the_training(tmp_path, monkeypatch):
    (scratch := tmp_path / "work/x").mkdir(parents=True)
    (tmp_path / "outputs").mkdir()
    out = tmp_path / "outputs/pretrain/x/lstm-1"
    require_one_mount(scratch, out)

    def refuse(path: Path, target: Path) -> None:
        assert target.parent == tmp_path / "outputs"  # the nearest existing folder
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UsageError, match="are on two mounts; put outputs/ and work/ on the same mount"):
        require_one_mount(scratch, out)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_asks_git_goes_without(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {"git_commit": None, "git_dirty": None}
    assert remote() is None
    with pytest.raises(UsageError, match="needs git, which is not installed here"):
        tables_at("HEAD~1", tmp_path)


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Return an empty folder, which is the only folder of programs."""
    (folder := tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize("missing", on_slurm.COMMANDS)
def test_without_a_program_of_slurm_there_is_a_line(programs, missing):
    for name in {*on_slurm.COMMANDS} - {missing}:
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    with pytest.raises(UsageError, match=f"^{missing} is not installed here; run the command on a machine that"):
        on_slurm.Cluster()


def test_without_the_package_ray_there_is_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^Ray is not installed; pip install 'ray>=2\.40', on all machines$"):
        on_ray.Cluster()


@pytest.mark.usefixtures("programs")
def test_without_a_compiler_the_package_is_built_without_its_c_code(tmp_path):
    build = "import setuptools; setuptools.setup()"
    places = f"--build-lib={tmp_path}/lib", f"--build-temp={tmp_path}/temp"
    done = subprocess.run([sys.executable, "-c", build, "build_ext", *places], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "retable.nn._fused" in done.stderr and not list(tmp_path.rglob("*.so"))


def test_without_the_c_code_torch_does_the_work(monkeypatch):
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    assert fused._compiled() is None
    monkeypatch.setattr(fused, "COMPILED", None)
    x = torch.linspace(-3, 3, 7).bfloat16()
    assert torch.equal(fused.gelu(x), torch.nn.functional.gelu(x))


@pytest.mark.long
@pytest.mark.usefixtures("programs")
def test_without_a_compiler_a_compiled_model_has_a_line(tmp_path):
    call = "import torch; torch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2))"
    code = f"from pipelines.config.errors import one_line_errors\nwith one_line_errors(): {call}"
    own = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=own, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "error: compile=true needs the C++ compiler g++, which is not installed here; install it, or leave "
        "compile=true out\n",
    )


@pytest.mark.parametrize("has_gpu", [False, True])
def test_make_asks_nvidia_smi_for_the_build_of_torch_and_goes_without(programs, tmp_path, has_gpu):
    make, cat = (shutil.which(name, path=os.defpath) for name in ("make", "cat"))
    (programs / "cat").symlink_to(cat)
    if has_gpu:
        (programs / "nvidia-smi").symlink_to(cat)
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = subprocess.run([make, "-n", "env"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("https://download.pytorch.org/whl/cpu" in done.stdout) != has_gpu


def test_a_checkout_without_git_is_a_dvc_project_without_git(tmp_path, monkeypatch):
    """Such as a checkout from the zip file of a code host; after `git init`, DVC uses git."""
    for name in ("config", ".gitignore"):
        (tmp_path / ".dvc").mkdir(exist_ok=True)
        shutil.copyfile(ROOT / ".dvc" / name, tmp_path / ".dvc" / name)
    shutil.copyfile(ROOT / ".dvcignore", tmp_path / ".dvcignore")
    monkeypatch.setattr(project, "CHECKOUT", tmp_path)
    project.complete(tmp_path)
    assert Repo(str(tmp_path)).config["core"]["no_scm"] is True
    (tmp_path / ".git").mkdir()
    project.complete(tmp_path)
    assert "no_scm = false" in (tmp_path / ".dvc/config.local").read_text(encoding="utf-8")
