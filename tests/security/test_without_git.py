"""Where git is not installed, as in slim images, stages run, and what needs git says so in one line."""

import pytest

from retable.core.artifacts import git_state, remote
from retable.core.errors import UsageError
from retable.reporting.comparison import tables_at


def test_what_asks_git_goes_without(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {"git_commit": None, "git_dirty": None}
    assert remote() is None
    with pytest.raises(UsageError, match="needs git, which is not installed here"):
        tables_at("HEAD~1", tmp_path)
