"""What a kill in the middle leaves of DVC's own notes, and what the next command makes of it."""

import json
import os
from pathlib import Path
from textwrap import indent

import pytest
from dvc.dvcfile import Lockfile
from dvc.fs import localfs
from dvc.repo import Repo
from dvc.rwlock import rwlock
from dvc.utils.serialize import _common, _yaml, modify_yaml
from dvc_objects.fs.local import FsspecLocalFileSystem

from pipelines.locks import forget_killed, write_only_what_is_new, write_whole

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


STAGES = """
first: {cmd: echo $SAYS-1 > first, outs: [first]}
a-name-that-is-in-another: {cmd: cat first > other, deps: [first], outs: [other]}
a-name: {cmd: cat first other > last, deps: [first, other], outs: [last]}
a-name-by-which-others-are-long: {cmd: "LONG", deps: [last], outs: [long]}
"""
LONG = "a-name-by-which-others-are-long"
VERY_LONG = f"a-name{'-of-many-words' * 10}"  # behind a question mark in YAML


def test_a_stages_notes_are_written_in_place_as_dvc_writes_them(tmp_path, monkeypatch):
    """Of stages new and known, in the middle and at the end; those of others stay as they are to the byte."""
    made = {}
    for ours in (False, True):
        with monkeypatch.context() as patch:
            folder = tmp_path / str(ours)
            folder.mkdir()
            patch.chdir(folder)
            Repo.init(no_scm=True).close()
            long = f"cp last long{' && true' * 30}"
            Path("dvc.yaml").write_text("stages:" + indent(STAGES, "  ").replace("LONG", long))
            with Path("dvc.yaml").open("a") as file:
                file.write(f"  {VERY_LONG}: {{cmd: echo $SAYS-2 > longest, outs: [longest]}}\n")
            theirs = Lockfile.dump_stages
            patch.setattr(Lockfile, "dump_stages", theirs)  # to be put back
            if ours:
                write_only_what_is_new()
            for says in ("one", "two"):
                patch.setenv("SAYS", says)
                for name in ("first", VERY_LONG, "a-name-that-is-in-another", "a-name", LONG):
                    with Repo() as repo:
                        repo.reproduce(name, single_item=True, force=True)
                    made.setdefault(ours, []).append(Path("dvc.lock").read_text())
                    if ours:  # what DVC would lay out anew if it wrote the whole file
                        Path("dvc.lock").write_text(Path("dvc.lock").read_text().replace("hash: md5", 'hash: "md5"', 1))
            with Repo() as repo:
                assert repo.status() == {}
    assert [text.replace('"md5"', "md5") for text in made[True]] == made[False]
    assert len(set(made[False])) == 10 and '"md5"' in made[True][-1]


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
