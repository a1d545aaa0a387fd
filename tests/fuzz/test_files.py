"""Damaged and hostile files of users: each is read as its reader promises, to what later stages take, or refused in one
line that names it.

FUZZ_COUNT files are drawn by FUZZ_SEED. Past finds stand as tests beside the readers' own:

    FUZZ_COUNT=20000 FUZZ_SEED=1 python -m pytest tests/fuzz/test_files.py
"""

import os
import random
import shutil
from functools import cache
from pathlib import Path

import pytest

from pipelines.config.errors import one_line_errors
from retable.corpora.text import SPLITS
from tests.fuzz.bounds import bounded_memory, bounded_time
from tests.fuzz.damage import damaged
from tests.fuzz.kinds import Kind, kinds

COUNT, SEED = int(os.environ.get("FUZZ_COUNT", 300)), int(os.environ.get("FUZZ_SEED", 1))
BLOCK = 50

all_kinds = cache(kinds)


def outcome(kind: Kind, files: dict[str, bytes], dice: random.Random, capsys) -> str:
    """Nothing where they are read, and else the line of the refusal. The working folder is emptied first."""
    for path in Path().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in files.items():
        Path(name).write_bytes(content)
    Path("out").mkdir()
    capsys.readouterr()  # what was said of those before
    try:
        with one_line_errors(), bounded_memory(), bounded_time():
            kind.use(dice)
    except SystemExit as end:
        assert end.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and line.isprintable() and len(line) < 1000, line[:2000]
        named = [
            *files, "task.", "this machine has not the memory", "*.bin of",
            *(f"the {split} split" for split in SPLITS),
        ]  # fmt: skip
        assert any(name in line for name in named), f"names no file: {line}"
        return line
    return ""


@pytest.mark.parametrize("name", all_kinds())
def test_the_examples_are_well_formed(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = all_kinds()[name]
    assert not outcome(kind, dict(kind.files), random.Random(1), capsys)


@pytest.mark.parametrize("block", range(-(-COUNT // BLOCK)))
def test_drawn_files_are_read_or_refused_in_one_line(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, failed, refused = list(all_kinds()), [], 0
    for number in range(block * BLOCK, min(block * BLOCK + BLOCK, COUNT)):
        dice = random.Random(f"{SEED} {number}")
        kind = all_kinds()[name := names[number % len(names)]]
        file, files = dice.choice(list(kind.files)), dict(kind.files)
        others = [content for each in all_kinds().values() for content in each.files.values()]
        files[file] = damaged(files[file], dice, others)
        try:
            refused += bool(outcome(kind, files, dice, capsys))
        except (Exception, TimeoutError) as error:
            capsys.readouterr()
            failed.append(f"{number}: {name}, {file} {files[file][:300]!r}: {type(error).__name__}: {str(error)[:600]}")
    assert not failed, "\n".join(failed)
    assert refused
