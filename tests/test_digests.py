import hashlib
import json
import os
from pathlib import Path

import pytest

from retable.core import digests
from retable.core.artifacts import read_run, require
from retable.core.digests import check, digest, digest_of, write_digests
from retable.core.errors import UsageError

CELL = Path("outputs/pretrain/ptb/lstm-1")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(digests, "_unchecked", [])
    monkeypatch.setattr(digests, "_known", {})


def cell(**run) -> Path:
    (CELL / "parts").mkdir(parents=True)
    (CELL / "run.json").write_text(json.dumps({"stage": "pretrain"} | run))
    (CELL / "parts/model.safetensors").write_text("weights")
    return CELL


def test_digests(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert digest(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest_of({"a": 1, "b": [2, "c"]}) == hashlib.sha256(b'{"a": 1, "b": [2, "c"]}').hexdigest()
    with pytest.raises(OSError, match=r"\[Errno 5\] .*: '/proc/self/mem'$"):  # a file that opens, but cannot be read
        digest(Path("/proc/self/mem"))
    assert digest_of({"b": [2, "c"], "a": 1}) == digest_of({"a": 1, "b": [2, "c"]}) != digest_of({"a": 1})


def age(path: Path) -> None:
    """Set the time of a file's last change to an hour ago."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - 3600 * 10**9))


@pytest.fixture
def read_through(monkeypatch) -> list[str]:
    """Return the files that are read completely."""
    read, whole = [], hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda file, kind: (read.append(file.name), whole(file, kind))[1])
    monkeypatch.setattr(digests, "_TICK", -1)  # simulates a file system whose clock has the resolution of ours
    return read


def test_what_was_not_written_to_is_read_through_once_a_process(read_through):
    path = Path("a")
    path.write_text("one")
    first = digest(path)
    assert digest(path) == first and len(read_through) == 1
    path.write_text("two")  # text of the same length
    age(path)
    assert digest(path) != first and len(read_through) == 2


def test_a_large_file_is_read_through_once_a_project(read_through, monkeypatch):
    monkeypatch.setattr(digests, "LARGE", 4)
    Path("work").mkdir()
    Path("outputs").mkdir()
    for name in ("small", "large"):
        Path(name).write_text("abc" if name == "small" else "abcdef")
    expected = {name: digest(Path(name)) for name in ("small", "large")}
    digests._known.clear()  # simulates another process
    assert {name: digest(Path(name)) for name in ("small", "large")} == expected
    assert read_through == ["small", "large", "small"]
    Path("large").write_text("ghijkl")
    digests._known.clear()
    assert digest(Path("large")) == hashlib.sha256(b"ghijkl").hexdigest()
    digests.REMEMBERED.write_text("{")  # a damaged cache: the file is read completely again
    digests._known.clear()
    assert digest(Path("large")) == hashlib.sha256(b"ghijkl").hexdigest()
    assert [path.name for path in Path("work").iterdir()] == [digests.REMEMBERED.name]


def test_what_is_written_within_a_tick_of_the_clock_is_read_through_again(tmp_path):
    path = tmp_path / "a"
    for content in (b"one", b"two"):
        path.write_bytes(content)
        os.utime(path, ns=(0, path.stat().st_mtime_ns))
        assert digest(path) == hashlib.sha256(content).hexdigest()


def test_a_cell_of_before_is_read_with_one_warning(capsys):
    cell()
    for _ in range(2):
        assert require(CELL / "parts/model.safetensors") and read_run(CELL) == {"stage": "pretrain"}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {CELL} was made before cells had digests; it is read unchecked")


def test_a_cell_that_lost_its_digests_is_refused():
    cell(format=digests.FORMAT)
    with pytest.raises(UsageError, match=rf"^{CELL}/digests.json is missing, .* contains pretrain/ptb/lstm-1,"):
        read_run(CELL)


def test_a_run_that_is_no_json_is_refused_by_name():
    cell()
    for content in ("{", "[" * 10000, "\x00"):
        (CELL / "run.json").write_text(content)
        with pytest.raises(UsageError, match=rf"^{CELL}/run.json is damaged"):
            read_run(CELL)


def test_a_cell_that_moved_is_checked_where_it_stands(capsys):
    write_digests(cell())
    (CELL / ".nfs01").write_text("")
    Path("data").mkdir()
    for name in ("run.json", "train.txt"):
        Path("data", name).write_text("[1]")
    check(Path("data/train.txt"))
    assert require(CELL / "run.json") and require(CELL) == CELL and capsys.readouterr().err == ""
    elsewhere = CELL.rename("mine")
    assert require(elsewhere / "parts/model.safetensors")
    (elsewhere / "parts/model.safetensors").write_text("Weights")
    with pytest.raises(UsageError, match=r"^mine/parts/model.safetensors is damaged: "):
        require(elsewhere / "parts/model.safetensors")
