"""Test that text is turned into tokens in parts with the same bytes as in one process."""

import importlib
from itertools import product
from pathlib import Path

import pytest

from retable.corpora import collection
from retable.corpora.collection import write_collection
from retable.corpora.text import read_units
from retable.data.encode import write_tokens
from retable.data.parts import cuts, write_in_parts
from retable.tokenizers import byte_bpe

LINES = [f"the cat {i} sat" + " é ☃" * (i % 7) for i in range(40)]
TEXTS = {
    "lines": ("line", "\n".join(LINES) + "\n"),
    "blank lines": ("line", "\n\n".join(LINES) + "\n\n"),
    "documents": ("document", "".join(line + "\n" * (1 + i % 3) for i, line in enumerate(LINES)) + "\n"),
    "one document": ("document", "\n".join(LINES) + "\n\n"),
    "a line without an end": ("line", "\n".join(LINES)),
    "other line ends": ("document", "\r\n\r\n".join(LINES) + "\r\n\r\n"),
    "a line": ("line", "the cat\n"),
}


class Here:
    """Runs all parts in this process, in reverse order."""

    def __init__(self, n: int, folder: Path):
        self.n, self.folder = n, folder
        self.called = 0
        folder.mkdir()

    def __call__(self, function, parts):
        module, _, name = function.rpartition(".")
        for part in reversed(parts):
            getattr(importlib.import_module(module), name)(*part)
            self.called += 1


@pytest.mark.parametrize(("name", "n"), [*product(TEXTS, [3, 1000]), ("lines", 1), ("documents", 8)])
def test_the_bytes_do_not_hang_on_the_number_of_parts(name, n, tmp_path):
    unit, text = TEXTS[name]
    (path := tmp_path / "text.txt").write_text(text, encoding="utf-8", newline="")
    tokenizer = byte_bpe.train(LINES, vocab_size=280)
    tokenizer.save(tmp_path / "tokenizer.json")
    one = write_tokens(tokenizer, read_units(path, unit), unit == "document", tmp_path / "one")
    spread = Here(n, tmp_path / "parts")
    assert write_in_parts(tmp_path / "tokenizer.json", path, unit, tmp_path / "several", spread) == one
    assert spread.called == len(cuts(path, n, unit)) - 1
    assert spread.called >= (3 if n > 1 and len(text) > 20 and name != "one document" else 1)
    for suffix in (".bin", ".units.npy"):
        assert (tmp_path / f"several{suffix}").read_bytes() == (tmp_path / f"one{suffix}").read_bytes()


@pytest.mark.parametrize("documents", [False, True])
def test_files_become_the_text_of_one_process(documents, tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "SMALL", 100)
    for i in range(7):
        text = "" if i == 2 else "\n\n".join(LINES[5 * i : 5 * i + 1 + i]) + "\n" * (i % 2)
        (tmp_path / f"{i}.train").write_text(text, encoding="utf-8")
    splits = {"train": "*.train", "validation": "3.train", "test": "0.train"}
    for n in (None, 1, 3, 20):
        (folder := tmp_path / str(n)).mkdir()
        spread = None if n is None else Here(n, tmp_path / f"parts-{n}")
        counts = write_collection(folder, str(tmp_path), **splits, documents=documents, spread=spread)
        if spread is None:
            one = counts
        assert counts == one and (spread is None or spread.called >= min(n, 2))
        for split in splits:
            assert (folder / f"{split}.txt").read_bytes() == (tmp_path / f"None/{split}.txt").read_bytes()
