"""What a kill in the middle leaves of DVC's own notes, and what the next command makes of it."""

import json
import os

import pytest
from dvc.fs import localfs
from dvc.rwlock import rwlock
from dvc.utils.serialize import _common, _yaml, modify_yaml
from dvc_objects.fs.local import FsspecLocalFileSystem

from pipelines.locks import forget_killed, write_whole

PID_MAX = 2**22  # of Linux: no process has it


@pytest.fixture
def patched(monkeypatch):
    monkeypatch.setattr(FsspecLocalFileSystem, "open", FsspecLocalFileSystem.open)  # to be put back
    write_whole()


def test_what_dvc_writes_is_as_it_was_or_as_it_will_be(tmp_path, patched, monkeypatch):
    """In the middle and where it is broken off; `dvc.lock`, and who is at work."""
    lock, seen = tmp_path / "dvc.lock", []
    lock.write_text("stages: {a: 1}\n")

    def dump(data, stream):
        _yaml._dump(data, stream)
        stream.flush()
        seen.append(lock.read_text())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _common._dump_data(str(lock), {"stages": {"b": 2}}, dump, localfs)
    assert seen == ["stages: {a: 1}\n"] and lock.read_text() == "stages: {a: 1}\n"
    with modify_yaml(str(lock), fs=localfs) as data:
        data["stages"] = {"b": 2}
    assert lock.read_text() == "stages:\n  b: 2\n"
    with rwlock(str(tmp_path), localfs, "dvc repro", [], ["outputs/a"], False):
        noted = (tmp_path / "rwlock").read_text()
        before = os.stat(tmp_path / "rwlock").st_ino
    assert json.loads(noted)["write"]["outputs/a"]["pid"] == os.getpid()
    assert os.stat(tmp_path / "rwlock").st_ino != before
    assert {path.name for path in tmp_path.iterdir()} == {"dvc.lock", "rwlock", "rwlock.lock"}


@pytest.mark.parametrize(
    ("said", "since_boot", "stays"),
    [
        ("", False, False),  # broken off
        ('{"write": {"outputs/a', False, False),
        ("{}", False, False),
        ('{"write": {"a": {"pid": NOBODY, "cmd": "dvc repro"}}, "read": {}}', False, False),
        ('{"read": {"a": [{"pid": MINE, "cmd": "dvc repro"}]}}', False, True),
        ('{"read": {"a": [{"pid": MINE, "cmd": "dvc repro"}]}}', True, False),  # another's number
    ],
)
def test_only_who_is_at_work_is_known_to_be(said, since_boot, stays, tmp_path):
    notes = tmp_path / "rwlock"
    forget_killed(notes)
    notes.write_text(said.replace("MINE", str(os.getpid())).replace("NOBODY", str(PID_MAX)))
    if since_boot:
        os.utime(notes, (1, 1))
    forget_killed(notes)
    assert notes.exists() == stays
