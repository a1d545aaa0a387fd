"""Where git is not installed, as in slim images, stages run, and what needs git says so in one line."""

import shutil

import pytest
from dvc.repo import Repo

from pipelines.config import project
from retable.core.artifacts import git_state, remote
from retable.core.errors import UsageError
from retable.reporting.comparison import tables_at

ROOT = project.CONF.parent


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
