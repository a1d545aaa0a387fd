import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from retable.artifacts import (
    environment,
    git_state,
    hardware,
    read_record,
    read_run,
    record_file,
    require,
    write_metrics,
    write_record,
)
from retable.errors import UsageError


def fill(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)


def test_metrics_are_flat_sorted_and_finite(tmp_path):
    write_metrics(tmp_path, {"test/é": 2, "a": 0.1})
    text = (tmp_path / "metrics.json").read_text(encoding="utf-8")
    assert text == '{\n  "a": 0.1,\n  "test/é": 2\n}\n'
    for value in (math.nan, -math.inf):
        with pytest.raises(UsageError, match=r"b is .*: the training has diverged"):
            write_metrics(tmp_path, {"a": 1.0, "b": value})
    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8")) == {"test/é": 2, "a": 0.1}


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("outputs/prepare/grammar/train.txt", "dvc repro graph/corpus/grammar/dvc.yaml:prepare"),
        ("outputs/prepare/grammar/sentiment/train.tsv", "dvc repro graph/corpus/grammar/dvc.yaml:prepare"),
        ("outputs/encode/grammar/word/train.bin", "dvc repro graph/corpus/grammar/dvc.yaml:encode-word"),
        (
            "outputs/pretrain/ptb/lstm_5-1/model.safetensors",
            "dvc repro graph/corpus/ptb/dvc.yaml:pretrain-lstm_5-1",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_stage_that_makes_it(path, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"{path} is missing; .*`{command}`"):
        require(Path(path))
    with pytest.raises(UsageError, match=r"run.json is missing"):
        read_run(Path(path).parent)
    Path(path).parent.mkdir(parents=True)
    (Path(path).parent / "run.json").write_text('{"seed": 1}')
    assert read_run(Path(path).parent) == {"seed": 1}


def test_a_record_is_that_of_the_making_that_left_the_cell(tmp_path):
    cell = tmp_path / "outputs/pretrain/ptb/lstm-1"
    cell.mkdir(parents=True)
    for name in ("metrics.json", "run.json", "model.safetensors"):
        (cell / name).write_text("{}")
    assert read_record(cell) == {}  # from a cache, or from another machine
    write_record(cell, {"seconds": 1.5})
    assert read_record(cell) == {"seconds": 1.5}
    assert {path.name for path in cell.parent.iterdir()} == {"lstm-1", record_file(cell).name}

    (cell / "metrics.json").write_text('{"loss": 1}')  # such as an older making, out of DVC's run cache
    assert read_record(cell) == {}
    (cell / "metrics.json").write_text("{}")  # the same numbers again
    assert read_record(cell) == {"seconds": 1.5}
    (cell / "run.json").unlink()
    assert read_record(cell) == {}


def test_the_commit_is_known_and_whether_the_code_is_as_committed(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.chdir(tmp_path)
    git("init")
    for name in ("src/code.py", "conf/model.yaml", "params.yaml", "results/table.csv"):
        fill(Path(name).parent, Path(name).name)
    git("add", ".")
    git("commit", "-m", "first")
    clean = {"git_commit": git("rev-parse", "HEAD"), "git_dirty": False}
    assert git_state() == clean
    for name in ("params.yaml", "results/table.csv", "notes.txt"):  # what the pipeline rewrites, and no code
        Path(name).write_text("other")
    assert git_state() == clean
    for name in ("src/code.py", "conf/new.yaml"):  # changed, and not yet added
        before = Path(name).read_text() if Path(name).exists() else None
        Path(name).write_text("other")
        assert git_state() == clean | {"git_dirty": True}
        Path(name).unlink() if before is None else Path(name).write_text(before)
    assert git_state() == clean


def test_versions_and_machine_are_described():
    assert {"python", "torch", "lightning", "numpy"} <= environment().keys()
    assert "cores" in hardware() and hardware().endswith("GiB")


@pytest.mark.parametrize(
    ("names", "said"), [(["NVIDIA H100"], "GiB, NVIDIA H100"), (["A", "A", "B"], "GiB, 2 × A, B"), ([], "GiB")]
)
def test_hardware_names_the_gpus_that_were_used(names, said, monkeypatch):
    cuda = SimpleNamespace(is_initialized=lambda: bool(names), device_count=lambda: len(names))
    cuda.get_device_name = names.__getitem__
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert hardware().endswith(said)


def test_a_record_that_was_cut_off_is_none(tmp_path):
    cell = tmp_path / "outputs/pretrain/a/b-1"
    fill(cell, "metrics.json")
    write_record(cell, {"seconds": 1.5})
    assert read_record(cell)["seconds"] == 1.5
    for text in ("", '{"seconds": 1.'):
        record_file(cell).write_text(text)
        assert read_record(cell) == {}
