"""What may be replaced and where, on one mount only, and what runs without git."""

import errno
import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipelines.config import project
from retable.core.artifacts import git_state, remote
from retable.core.errors import UsageError
from retable.core.publishing import refuse_all_but_a_report, replace, require_one_mount
from retable.reporting.changes import tables_at

ROOT = project.CONF.parent


def report(folder):
    folder.mkdir(parents=True)
    for name in ("report.md", "metrics.json", "lm.csv", "lm.svg"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("name", ["thesis.tex", "other/x", "notes", "model.safetensors", ".git/HEAD"])
def test_a_folder_with_another_file_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    refuse_all_but_a_report(tmp_path / "empty")
    out = report(tmp_path / "results")
    refuse_all_but_a_report(out)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("kept")
    with pytest.raises(UsageError, match=f"{name.partition('/')[0]} is not part of a report.*move it"):
        refuse_all_but_a_report(out)
    assert (out / name).read_text() == "kept"


def test_a_link_is_refused_and_breaks_no_later_report(tmp_path):
    out = tmp_path / "results"
    out.symlink_to(report(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="results is a link"):
        refuse_all_but_a_report(out)
    assert out.is_symlink() and (tmp_path / "elsewhere/report.md").exists()
    aside = tmp_path / "aside"
    for path in (aside, tmp_path / "aside.old"):  # as an earlier version left them
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
    with pytest.raises(
        SettingError, match=r"corpus\.write: _target_=retable\.core\.publishing\.remove_empty is none of"
    ):
        check_all({"corpus": {"write": {"_target_": "retable.core.publishing.remove_empty"}}}, schema, ())


def test_two_mounts_are_told_before_the_training(tmp_path, monkeypatch):
    (scratch := tmp_path / "work/x").mkdir(parents=True)
    (tmp_path / "outputs").mkdir()
    out = tmp_path / "outputs/pretrain/x/lstm-1"
    require_one_mount(scratch, out)

    def refuse(path: Path, target: Path) -> None:
        assert target.parent == tmp_path / "outputs"  # the nearest folder that exists
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UsageError, match="are on two mounts; put outputs/ and work/ on one"):
        require_one_mount(scratch, out)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_asks_git_goes_without(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {"git_commit": None, "git_dirty": None}
    assert remote() is None
    with pytest.raises(UsageError, match="needs git, which is not installed here"):
        tables_at("HEAD~1", tmp_path)


def test_a_checkout_without_git_is_a_dvc_project_without_git(tmp_path, monkeypatch):
    """As a code host's zip file is; `git init` makes DVC use git again."""
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
