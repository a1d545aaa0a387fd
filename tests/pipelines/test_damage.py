"""Test every file of a cell with every kind of damage: a reader refuses it by name, and nothing is written."""

import shutil
from pathlib import Path

import pytest

import retable
from retable.core import digests
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.reporting.results import read_result
from tests.pipelines.conftest import BILSTM, CELLS, SKIPGRAM, TASK, TINY

DAMAGES = ("flipped", "cut", "empty", "longer", "swapped", "missing")


@pytest.fixture(scope="module")
def beside(cells) -> list[Path]:
    return sorted(path for path in (cells.folder / "outputs").rglob("*") if path.is_file())


def damage(path: Path, how: str, others: list[Path]) -> bool:
    """Damage a file. Return whether this kind of damage is possible for it."""
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "swapped":
        same = (other for other in others if other.name == path.name)
        other = next((other.read_bytes() for other in same if other.read_bytes() != whole), whole)
        path.unlink()
        path.write_bytes(other)
        return other != whole
    else:
        flipped = bytearray(whole)
        if flipped:
            flipped[len(whole) // 2] ^= 1
        contents = {"flipped": bytes(flipped), "cut": whole[: len(whole) // 2], "empty": b"", "longer": whole + b"\n"}
        path.unlink()  # the new file gets another inode than the file that was already read
        path.write_bytes(contents[how])
        return contents[how] != whole
    return True


@pytest.mark.parametrize("place", CELLS)
def test_each_file_of_a_cell_is_refused_by_name(place, cells, beside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole, cell = cells.folder / "outputs" / place, Path("outputs", place)
    shutil.copytree(whole, cell)
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert len(names) >= 5
    for name in names:
        for how in DAMAGES:
            if not damage(cell / name, how, beside):
                shutil.copy(whole / name, cell / name)
                continue
            digests._written.cache_clear()  # the names and sizes of a cell are cached per process
            asked = cell / ("metrics.json" if how == "missing" and name.name != "metrics.json" else name)
            with pytest.raises(UsageError) as refused:
                require(asked)
            if (name.name, how) != ("digests.json", "swapped"):  # valid itself, it shows that others are not
                assert str(refused.value).startswith(f"{cell / name} is "), (name, how)
            (cell / name).unlink(missing_ok=True)
            shutil.copy(whole / name, cell / name)
            digests._written.cache_clear()
            assert require(cell / name) == cell / name
    (cell / "extra.txt").write_text("more")
    shutil.copy(whole / "digests.json", cell / "digests.json")
    digests._written.cache_clear()
    with pytest.raises(UsageError, match=rf"^{cell}/extra.txt does not belong to its cell; remove it$"):
        require(cell / "run.json")


READERS = [
    ("prepare/grammar_tiny/train.txt", ["tokenize", TINY]),
    ("prepare/grammar_tiny/sentiment/train.tsv", ["finetune", *TASK, *BILSTM, "task=sentiment"]),
    ("tokenize/grammar_tiny/word/tokenizer.json", ["pretrain", TINY, "recipe=counted/kn3"]),
    ("tokenize/grammar_tiny/word/train.bin", ["pretrain", TINY, "recipe=counted/kn3"]),
    ("tokenize/grammar_tiny/word/validation.bin", ["pretrain", TINY, "recipe=recurrent/lstm"]),
    ("tokenize/grammar_tiny/word/test.units.npy", ["evaluate", TINY, "cell=grammar_tiny/kn3-1"]),
    ("embed/grammar_tiny/skipgram-1/vectors.bin", ["finetune", *TASK, *BILSTM, "task=sentiment", SKIPGRAM]),
    ("embed/grammar_tiny/skipgram-1/vectors.bin",
     ["evaluate", TINY, "stage=embed", "cell=grammar_tiny/skipgram-1", "benchmark=neighbours"]),
    ("pretrain/grammar_tiny/kn3-1/config.yaml", CELLS["mix/grammar_tiny/both-1"]),
    ("pretrain/grammar_tiny/kn3-1/model.safetensors", CELLS["mix/grammar_tiny/both-1"]),
    ("pretrain/grammar_tiny/gpt-1/model.safetensors", CELLS["finetune/grammar_tiny/acceptability-gpt-1"]),
    ("pretrain/grammar_tiny/gpt-1/tokenizer.json", CELLS["generate/grammar_tiny/gpt-1-top_p"]),
    ("pretrain/grammar_tiny/gpt-1/run.json", CELLS["generate/grammar_tiny/gpt-1-top_p"]),
    ("mix/grammar_tiny/both-1/parts/0/model.safetensors", CELLS["evaluate/grammar_tiny/both-1"]),
]  # fmt: skip


@pytest.mark.parametrize(("file", "command"), READERS, ids=[f"{file} by {by[0]}" for file, by in READERS])
def test_a_stage_refuses_what_it_reads(own, file, command, beside):
    path = own.folder / "outputs" / file
    whole = path.read_bytes()
    damage(path, "flipped", beside)
    try:
        line = own.refuse(*command)
    finally:
        path.write_bytes(whole)
    assert line.startswith(f"error: outputs/{file} is damaged: it differs from the file that its stage wrote; st")


@pytest.mark.parametrize(("file", "read"), [
    ("pretrain/grammar_tiny/kn3-1/model.safetensors", retable.load),
    ("pretrain/grammar_tiny/gpt-1/config.yaml", retable.load),
    ("embed/grammar_tiny/skipgram-1/vectors.bin", retable.load),
    ("mix/grammar_tiny/both-1/parts/1/tokenizer.json", retable.load),
    ("finetune/grammar_tiny/sentiment-bilstm-1/model.safetensors", retable.load),
    ("from_scratch/grammar_pos/bilstm_crf-1/learnt.json", retable.load),
    ("from_scratch/grammar_pos/bilstm_crf-1/vocabulary.json", retable.load),
    ("from_scratch/grammar_pos/bilstm_crf-1/units.csv", read_result),
    ("pretrain/grammar_tiny/gpt-1/curve.csv", read_result),
    ("pretrain/grammar_tiny/gpt-1/metrics.json", read_result),
    ("generate/grammar_tiny/gpt-1-top_p/samples.jsonl", read_result),
])  # fmt: skip
def test_loading_and_reporting_refuse_what_they_read(own, file, read, beside, monkeypatch):
    monkeypatch.chdir(own.folder)
    path = Path("outputs", file)
    whole = path.read_bytes()
    damage(path, "flipped", beside)
    try:
        with pytest.raises(UsageError, match=rf"^outputs/{file} is damaged"):
            read(Path("outputs", *path.parts[1:4]))
    finally:
        path.write_bytes(whole)
