"""A cell that could not be put in its place is refused before it is made."""

import errno
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.core.publishing import require_one_mount


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
