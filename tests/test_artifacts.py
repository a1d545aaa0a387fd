import importlib.metadata
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from retable.core.artifacts import (
    changed_inputs,
    environment,
    git_state,
    hardware,
    read_json,
    read_record,
    read_run,
    record_file,
    require,
    write_json,
    write_metrics,
    write_record,
)
from retable.core.digests import digest, write_digests
from retable.core.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """Return a project; its folder also has the records of all studies."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))


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


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000])
def test_a_file_of_numbers_that_is_damaged_is_told(text, tmp_path):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(UsageError, match=r"metrics.json is damaged"):
        read_json(tmp_path / "metrics.json")


@pytest.mark.parametrize("path", [
    "outputs/pretrain/nope/model.safetensors", "outputs/../../../etc/passwd/config.yaml", "outputs/nope/config.yaml",
    "outputs/tokenize/../../../etc/tokenizer.json", "outputs/pretrain/ptb/../x/run.json", "outputs/pretrain",
    "outputs/a/b",
])  # fmt: skip
def test_a_path_of_another_form_than_those_of_cells_has_no_stage(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refusal:
        require(Path(path))
    assert str(refusal.value) == f"{path} is missing"


@pytest.mark.parametrize(("path", "advice"), [
    ("outputs/pretrain/lstm-1/model.safetensors", "form CORPUS/NAME: write ptb/lstm-1"),
    ("outputs/pretrain/ptb-lstm-1/model.safetensors", "form CORPUS/NAME: write ptb/lstm-1"),
    ("outputs/pretrain/pretrain/ptb/lstm-1/run.json", "form CORPUS/NAME: write ptb/lstm-1"),
    ("outputs/pretrain/outputs/pretrain/ptb/lstm-1/run.json", "form CORPUS/NAME: write ptb/lstm-1"),
    ("outputs/pretrain/embed/ptb/glove-1/run.json", "form CORPUS/NAME: write ptb/lstm-1"),
    ("outputs/lstm-1/config.yaml", "form STAGE/CORPUS/NAME: write pretrain/ptb/lstm-1"),
    ("outputs/ptb/lstm-1/config.yaml", "form STAGE/CORPUS/NAME: write pretrain/ptb/lstm-1"),
    ("outputs/x/config.yaml", "write one of embed/ptb/glove-1, pretrain/ptb/lstm-1"),
])  # fmt: skip
def test_a_path_of_another_form_is_told_the_closest_cells(path, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for cell in ("pretrain/ptb/lstm-1", "embed/ptb/glove-1"):
        fill(Path("outputs", cell), "run.json")
    with pytest.raises(UsageError, match=f"^{path} is missing; the name of a cell has the .*{advice}$"):
        require(Path(path))


@pytest.mark.parametrize(("path", "cell", "module"), [
    ("outputs/prepare/grammar/train.txt", "prepare/grammar", "prepare"),
    ("outputs/prepare/grammar/sentiment/train.tsv", "prepare/grammar", "prepare"),
    ("outputs/tokenize/grammar/word/train.bin", "tokenize/grammar/word", "tokenize_text"),
    ("outputs/from_scratch/ptb/rte-lstm-1/units.csv", "from_scratch/ptb/rte-lstm-1", "finetune"),
    ("outputs/pretrain/ptb/lstm_5-1/model.safetensors", "pretrain/ptb/lstm_5-1", "pretrain"),
])  # fmt: skip
def test_what_is_missing_is_named_with_the_stage_that_makes_it(path, cell, module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = f"{path} is missing; .* `retable repro` in a study that contains {cell}, or `python -m pipelines.{module}`"
    with pytest.raises(UsageError, match=line):
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
    assert read_record(cell) == {}  # a cell from a cache, or from another machine
    write_record(cell, {"seconds": 1.5})
    assert read_record(cell) == {"seconds": 1.5}
    assert {path.name for path in cell.parent.iterdir()} == {"lstm-1", record_file(cell).name}

    (cell / "metrics.json").write_text('{"loss": 1}')  # for example an older result, restored from DVC's run cache
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
    monkeypatch.setattr("retable.core.artifacts.CHECKOUT", tmp_path)
    assert git_state() == {"git_commit": None, "git_dirty": None}  # as in an installed package
    git("init")
    written = ("params.yaml", "studies/ptb/results/table.csv", "notes.txt")  # written by the pipeline, or not code
    for name in ("pyproject.toml", "src/code.py", "conf/model.yaml", "studies/ptb/study.yaml", *written[:2]):
        fill(Path(name).parent, Path(name).name)
    git("add", ".")
    git("commit", "-m", "first")
    clean = {"git_commit": git("rev-parse", "HEAD"), "git_dirty": False}
    assert git_state() == clean
    for name in written:
        Path(name).write_text("other")
    assert git_state() == clean
    for name in ("src/code.py", "conf/new.yaml", "studies/ptb/study.yaml"):  # changed or not yet added
        before = Path(name).read_text() if Path(name).exists() else None
        Path(name).write_text("other")
        assert git_state() == clean | {"git_dirty": True}
        Path(name).unlink() if before is None else Path(name).write_text(before)
    assert git_state() == clean


@pytest.mark.parametrize(
    ("names", "ending"), [(["NVIDIA H100"], "GiB, NVIDIA H100"), (["A", "A", "B"], "GiB, 2 × A, B"), ([], "GiB")]
)
def test_hardware_names_the_gpus_that_were_used(names, ending, monkeypatch):
    cuda = SimpleNamespace(is_initialized=lambda: bool(names), device_count=lambda: len(names))
    cuda.get_device_name = names.__getitem__
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert "cores" in hardware() and hardware().endswith(ending)


def test_a_package_that_is_not_installed_has_no_version_and_stops_no_stage_at_its_end(monkeypatch):
    before = environment()
    assert {"python", "torch", "lightning", "numpy", "mlflow"} <= before.keys()
    version = importlib.metadata.version

    def without_mlflow(package):
        if package == "mlflow":
            raise importlib.metadata.PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr(importlib.metadata, "version", without_mlflow)
    assert environment() == {package: number for package, number in before.items() if package != "mlflow"}


def test_a_record_that_was_cut_off_is_read_from_its_copy_or_is_none(tmp_path, monkeypatch):
    cell = tmp_path / "outputs/pretrain/a/b-1"
    fill(cell, "metrics.json")
    write_record(cell, {"seconds": 1.5})
    assert read_record(cell)["seconds"] == 1.5
    (kept,) = (tmp_path / "work/made").iterdir()
    for text in ("", '{"seconds": 1.'):
        record_file(cell).write_text(text)
        assert read_record(cell) == {"seconds": 1.5}
    for study in ("one", "two"):
        fill(tmp_path / "studies" / study / "outputs/pretrain/a/b-2", "metrics.json")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "studies/one"))
    write_record(tmp_path / "studies/one/outputs/pretrain/a/b-2", {"seconds": 2.5})
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "studies/two"))
    assert read_record(tmp_path / "studies/two/outputs/pretrain/a/b-2") == {"seconds": 2.5}
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    kept.write_text('{"seconds"')
    assert read_record(cell) == {}


@pytest.fixture
def chain(tmp_path):
    """Return a chain of cells as stages make them from two texts, and by cell what it reads."""
    reads = {
        "prepare/a": ["a.txt", "b.txt"],
        "tokenize/a/word": ["outputs/prepare/a/train.txt"],
        "pretrain/a/lstm-1": ["outputs/tokenize/a/word/train.bin"],
        "evaluate/a/lstm-1": ["outputs/pretrain/a/lstm-1/weights", "outputs/tokenize/a/word/train.bin", "c.txt"],
        "prepare/other": ["other.txt"],
    }
    outs = {"prepare": "train.txt", "tokenize": "train.bin", "pretrain": "weights", "evaluate": "units.csv"}
    for name in ("a.txt", "b.txt", "c.txt", "other.txt"):
        (tmp_path / name).write_text(name)
    for place, inputs in reads.items():
        (cell := tmp_path / "outputs" / place).mkdir(parents=True)
        (cell / outs[place.partition("/")[0]]).write_text(place)
        above = {"/".join(Path(name).parts[1:-1]) for name in inputs if name.startswith("outputs/")}
        digests = {name: digest(tmp_path / name) for name in inputs}
        write_json(cell / "run.json", {"stage": "x", "format": 2, "digests": digests, "made_from": [*above]})
        write_digests(cell)
    return tmp_path


@pytest.mark.parametrize("place", ["prepare/a", "tokenize/a/word", "pretrain/a/lstm-1", "evaluate/a/lstm-1"])
@pytest.mark.parametrize("changed", [*(("a.txt",), ("b.txt",), ("c.txt",), ("other.txt",), ("a.txt", "c.txt")), ()])
def test_a_text_that_has_changed_is_named_by_all_that_was_made_from_it(place, changed, chain, monkeypatch):
    for name in changed:
        (chain / name).write_text(f"another {name}")
    read = {"a.txt", "b.txt"} | ({"c.txt"} if place.startswith("evaluate") else set())
    expected = {chain / name for name in changed if name in read}
    makers = {"a.txt": "prepare/a", "b.txt": "prepare/a", "c.txt": "evaluate/a/lstm-1"}
    for folder in (chain, chain.parent):  # in whatever folder the command runs
        monkeypatch.chdir(folder)
        makers_of = changed_inputs([Path(os.path.relpath(chain / "outputs" / place))])
        assert makers_of == {path: makers[path.name] for path in expected}


def test_a_cell_that_was_made_again_is_another_input(chain):
    """Cells that read the earlier cell are stale, although no text has changed; a missing or damaged cell is
    ignored.
    """
    cell = chain / "outputs/tokenize/a/word"
    (cell / "train.bin").write_text("other tokens")
    write_digests(cell)
    ask = [chain / "outputs/evaluate/a/lstm-1", chain / "outputs/none/a/b"]
    assert changed_inputs(ask) == {cell / "train.bin": "evaluate/a/lstm-1"}
    assert changed_inputs([cell]) == {}
    (chain / "outputs/prepare/a/run.json").write_text("[")
    (chain / "a.txt").unlink()
    assert changed_inputs([chain / "outputs/tokenize/a/word"]) == {}
