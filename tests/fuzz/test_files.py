"""Test damaged and hostile files of users.

Each is read as its reader promises, and later stages accept the result; or a one-line error names the file. FUZZ_COUNT
files are drawn with FUZZ_SEED. Past faults have tests next to those of the readers:

    FUZZ_COUNT=20000 FUZZ_SEED=1 python -m pytest tests/fuzz/test_files.py
"""

import os
import random
import shutil
from functools import cache
from pathlib import Path

import pytest

from retable.corpora.text import SPLITS
from tests.fuzz.bounds import blocks, check, refusal
from tests.fuzz.damage import damaged
from tests.fuzz.kinds import Kind, kinds

COUNT, SEED = int(os.environ.get("FUZZ_COUNT", 300)), int(os.environ.get("FUZZ_SEED", 1))

all_kinds = cache(kinds)


def outcome(kind: Kind, files: dict[str, bytes], dice: random.Random, capsys) -> str:
    """Read files in an emptied working folder. Return nothing if they are accepted, otherwise the one-line error."""
    for path in Path().iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, content in files.items():
        Path(name).write_bytes(content)
    Path("out").mkdir()
    line = refusal(lambda: kind.use(dice), capsys)
    named = [*files, "task.", "not enough memory", "*.bin of", *(f"the {each} split" for each in SPLITS)]
    assert not line or any(name in line for name in named), f"names no file: {line}"
    return line


@pytest.mark.long
@pytest.mark.parametrize("name", all_kinds())
def test_the_examples_are_well_formed(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = all_kinds()[name]
    assert not outcome(kind, dict(kind.files), random.Random(1), capsys)


@pytest.mark.parametrize("numbers", blocks(COUNT))
def test_drawn_files_are_read_or_refused_in_one_line(numbers, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = list(all_kinds())
    others = [content for each in all_kinds().values() for content in each.files.values()]

    def case(number: int):
        dice = random.Random(f"{SEED} {number}")
        kind = all_kinds()[name := names[number % len(names)]]
        file, files = dice.choice(list(kind.files)), dict(kind.files)
        files[file] = damaged(files[file], dice, others)
        return f"{name}, {file} {files[file][:300]!r}", lambda: outcome(kind, files, dice, capsys)

    assert check(numbers, case)
