"""What fuzzing has found in files of users (tests/fuzz/test_files.py): each is refused in one line that names it."""

import io
import zipfile

import pytest

from retable.core.errors import UsageError
from retable.corpora.multiple_choice import read_choices
from retable.corpora.text8 import read_text8


def test_a_label_of_five_thousand_digits(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"c": "x", "e": ["y", "z"]}\n')
    (tmp_path / "a.lst").write_text("9" * 5000 + "\n")
    with pytest.raises(UsageError, match=r"a\.lst, line 1: label"):
        read_choices(tmp_path / "a.jsonl", "c", "e", labels=tmp_path / "a.lst")


def test_a_zip_that_is_cut_or_flipped(tmp_path):
    text, file, path = " the cat sees a bird" * 50, io.BytesIO(), tmp_path / "text8.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("text8", text)
    whole = file.getvalue()
    flipped = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in range(0, len(whole), 3)]
    refused = 0
    for damaged in (*flipped, *(whole[:length] for length in range(0, len(whole), 7))):
        path.write_bytes(damaged)
        try:
            assert read_text8(str(path)) == text  # a date, say, may be any
        except UsageError as error:
            assert "text8.zip" in str(error)
            refused += 1
    assert refused > len(whole) / 4
