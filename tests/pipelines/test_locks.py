"""Test what a kill leaves half-written of DVC's files, and what the next command does with it."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import indent

import psutil
import pytest
from dvc.dvcfile import Lockfile
from dvc.fs import localfs
from dvc.repo import Repo
from dvc.rwlock import rwlock
from dvc.utils.serialize import _common, _yaml, modify_yaml
from dvc_objects.fs.local import FsspecLocalFileSystem

from pipelines.config.errors import one_line_errors
from pipelines.config.patches import dvc_writes_only_what_is_new, dvc_writes_whole
from pipelines.study.dvc_lock import forget_killed, only_one
from retable.core.errors import UsageError
from retable.core.publishing import exclusive

PID_MAX = 2**22  # Linux's limit; no process has this number


@pytest.fixture
def patched(monkeypatch):
    monkeypatch.setattr(FsspecLocalFileSystem, "open", FsspecLocalFileSystem.open)  # so that it is restored
    dvc_writes_whole()


def test_what_dvc_writes_is_as_it_was_or_as_it_will_be(tmp_path, patched, monkeypatch):
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
VERY_LONG = f"a-name{'-of-many-words' * 10}"  # so long that YAML writes it after a question mark


def test_a_stages_notes_are_written_in_place_as_dvc_writes_them(tmp_path, monkeypatch):
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
            patch.setattr(Lockfile, "dump_stages", theirs)  # so that it is restored
            if ours:
                dvc_writes_only_what_is_new()
            for says in ("one", "two"):
                patch.setenv("SAYS", says)
                for name in ("first", VERY_LONG, "a-name-that-is-in-another", "a-name", LONG):
                    with Repo() as repo:
                        repo.reproduce(name, single_item=True, force=True)
                    made.setdefault(ours, []).append(Path("dvc.lock").read_text())
                    if ours:  # what DVC would write differently if it wrote the whole file
                        Path("dvc.lock").write_text(Path("dvc.lock").read_text().replace("hash: md5", 'hash: "md5"', 1))
            with Repo() as repo:
                assert repo.status() == {}
    assert [text.replace('"md5"', "md5") for text in made[True]] == made[False]
    assert len(set(made[False])) == 10 and '"md5"' in made[True][-1]


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
@pytest.mark.parametrize(("said", "stays"), [
    ("", False),  # cut off
    ('{"write": {"outputs/a', False),
    ("{}", False),
    ('{"write": {"a": {"pid": NOBODY, "cmd": "dvc repro"}}, "read": {}}', False),
    ('{"read": {"a": [{"pid": DVC, "cmd": "dvc repro"}]}}', True),
    ('{"read": {"a": [{"pid": ELSEWHERE, "cmd": "dvc repro"}]}}', False),  # a process number of another project
    ('{"read": {"a": [{"pid": MINE, "cmd": "dvc repro"}]}}', False),  # a process number of another container
    ('{"read": {"a": [{"pid": ENDED, "cmd": "dvc repro"}]}}', False),
])  # fmt: skip
def test_only_who_is_at_work_is_known_to_be(said, stays, seconds, tmp_path):
    """In spite of any change of the clock while a process works."""
    (notes := tmp_path / "project/.dvc/tmp/rwlock").parent.mkdir(parents=True)
    forget_killed(notes)
    with (
        subprocess.Popen(["sleep", "60"], executable="/bin/sleep", cwd=tmp_path / "project") as other,
        dvc(tmp_path / "project") as at_work,
        dvc(tmp_path) as elsewhere,
        ended() as zombie,
    ):
        pids = {
            "MINE": other.pid, "DVC": at_work.pid, "ENDED": zombie.pid, "NOBODY": PID_MAX, "ELSEWHERE": elsewhere.pid,
        }  # fmt: skip
        for name, pid in pids.items():
            said = said.replace(name, str(pid))
        notes.write_text(said)
        os.utime(notes, (time.time() + seconds, time.time() + seconds))
        forget_killed(notes)
        other.kill(), at_work.kill(), elsewhere.kill()
    assert notes.exists() == stays


def test_another_users_process_is_taken_to_be_at_work(tmp_path, monkeypatch):
    def denied(process: psutil.Process) -> str:
        raise psutil.AccessDenied(process.pid)

    (notes := tmp_path / ".dvc/tmp/rwlock").parent.mkdir(parents=True)
    monkeypatch.setattr(psutil.Process, "cwd", denied)
    with dvc(tmp_path) as process:
        notes.write_text(json.dumps({"write": {"a": {"pid": process.pid, "cmd": "dvc repro"}}}))
        forget_killed(notes)
        process.kill()
    assert notes.exists()


def dvc(folder: Path) -> subprocess.Popen:
    """Start a process that is called `dvc`."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "dvc"], cwd=folder)


def ended() -> subprocess.Popen:
    """Return a process that has ended, and for which nobody has waited."""
    process = subprocess.Popen([sys.executable, "-c", "", "dvc"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


def test_a_study_is_made_by_one_command_at_a_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with only_one("small"):
        said = f"^study small is being run by process {os.getpid()} on .* since .*; wait for it, or end it$"
        with pytest.raises(UsageError, match=said), only_one("small"):
            pass
        if (child := os.fork()) == 0:  # the child holds the lock too
            time.sleep(1)
            os._exit(0)
    with pytest.raises(UsageError), only_one("small"):
        pass
    os.waitpid(child, 0)
    with only_one("small"):
        pass


def test_a_study_that_another_machine_makes_is_respected_until_that_ends(tmp_path, monkeypatch):
    """In a shared folder, whose file system keeps locks for all machines.

    The name of the other machine is printed; neither its process number nor its clock has an effect.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "work").mkdir()
    there = f"study small is being run by process {os.getpid()} on another-machine since 23:59:59"
    with (tmp_path / "work/repro.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(there)
        lock.flush()
        os.utime(lock.name, (0, 0))
        with pytest.raises(UsageError, match=f"^{there}; wait for it, or end it$"), only_one("small"):
            pass
    assert (tmp_path / "work/repro.lock").read_text(encoding="utf-8") == there  # it has ended, with any number
    with only_one("small"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("lock", [lambda: only_one("small"), lambda: exclusive(Path("work/x"), Path("outputs/x"))])
def test_a_file_system_without_locks_is_told_in_one_line(tmp_path, monkeypatch, capsys, number, lock):
    def refuse(*_) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(SystemExit, match="2"), one_line_errors(), lock():
        pytest.fail("there are no locks")
    assert capsys.readouterr().err == (
        f"error: this file system has no file locks ({os.strerror(number)}), which cells need; "
        "put work/ on another file system\n"
    )
