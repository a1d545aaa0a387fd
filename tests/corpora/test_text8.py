import sys
import zipfile
from types import SimpleNamespace

import pytest

from retable.corpora.text8 import write_text8

WORDS = [f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10 % 10]}" for i in range(4000)]
TEXT = " " + " ".join(WORDS)


def read(folder, split):
    return (folder / f"{split}.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.parametrize("packed", [False, True])
def test_splits_hold_all_words_in_order(tmp_path, packed):
    source = tmp_path / "text8"
    if packed:
        with zipfile.ZipFile(source, "w") as archive:
            archive.writestr("text8", TEXT)
    else:
        source.write_text(TEXT, encoding="ascii")
    counts = write_text8(tmp_path, str(source), line=100)
    lines = [read(tmp_path, split) for split in ("train", "validation", "test")]
    assert " ".join(line for part in lines for line in part).split() == WORDS
    assert all(len(line.split()) == 100 for part in lines for line in part[:-1])
    shares = [sum(len(line) + 1 for line in part) / len(TEXT) for part in lines]
    assert shares == pytest.approx([0.9, 0.05, 0.05], abs=0.002)
    assert counts["train/words"] == sum(len(line.split()) for line in lines[0])


def test_all_of_it_for_word_vectors(tmp_path):
    (tmp_path / "text8").write_text(TEXT, encoding="ascii")
    counts = write_text8(tmp_path, str(tmp_path / "text8"), held_out=False)
    assert counts["train/words"] == len(WORDS)


def test_from_the_hub(tmp_path, monkeypatch):
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return [{"text": TEXT}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert write_text8(tmp_path, "hub:somebody/text8", held_out=False)["train/words"] == len(WORDS)
    assert asked == [("somebody/text8", "train")]
