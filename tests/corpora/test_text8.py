import io
import sys
import zipfile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from retable.core.errors import UsageError
from retable.corpora.text import read_lines
from retable.corpora.text8 import read_text8, write_text8

WORDS = [f"{'abcdefghij'[i % 10]}{'klmnopqrst'[i // 10 % 10]}" for i in range(4000)]
TEXT = " " + " ".join(WORDS)


def zipped(text: str) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text8", text)
    return file.getvalue()


@pytest.mark.parametrize("packed", [False, True])
def test_splits_hold_all_words_in_order(tmp_path, packed):
    source = tmp_path / "text8"
    source.write_bytes(zipped(TEXT) if packed else TEXT.encode())
    counts = write_text8(tmp_path, str(source), line=100)
    lines = [[*read_lines(tmp_path / f"{split}.txt")] for split in ("train", "validation", "test")]
    assert " ".join(line for part in lines for line in part).split() == WORDS
    assert all(len(line.split()) == 100 for part in lines for line in part[:-1])
    shares = [sum(len(line) + 1 for line in part) / len(TEXT) for part in lines]
    assert shares == pytest.approx([0.9, 0.05, 0.05], abs=0.002)
    assert counts["train/words"] == sum(len(line.split()) for line in lines[0])


@pytest.mark.parametrize("source", ["file", "hub:somebody/text8"])
def test_all_of_it_for_word_vectors(tmp_path, monkeypatch, source):
    (tmp_path / "text8").write_text(TEXT, encoding="ascii")
    load = Mock(return_value=[{"text": TEXT}])
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    path = str(tmp_path / "text8") if source == "file" else source
    assert write_text8(tmp_path, path, held_out=False)["train/words"] == len(WORDS)
    assert source == "file" or (load.call_args.args, load.call_args.kwargs) == (("somebody/text8",), {"split": "train"})


def test_a_zip_that_is_cut_or_flipped(tmp_path):
    text, path = " the cat sees a bird" * 50, tmp_path / "text8.zip"
    whole = zipped(text)
    flipped = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 3)]
    refused = 0
    for damaged in (*flipped, *(whole[:length] for length in range(0, len(whole), 7))):
        path.write_bytes(damaged)
        try:
            assert read_text8(str(path)) == text  # the path may be any text, such as a date
        except UsageError as error:
            assert "text8.zip" in str(error)
            refused += 1
    assert refused > len(whole) / 4
