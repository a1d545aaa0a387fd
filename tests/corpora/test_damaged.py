"""What fuzzing has found in files of users (tests/fuzz/test_files.py): each is refused in one line that names it."""

import io
import zipfile
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora.json_lines import parse, read_records
from retable.corpora.multiple_choice import read_choices
from retable.corpora.questions import HellaSwag, Labelled, Lambada
from retable.corpora.squad import read_squad
from retable.corpora.text8 import read_text8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "recursion"),
        ("9" * 5000, "4300 digits"),
        (r'{"a": "\ud800"}', "surrogates not allowed"),
        ("{", "column 2"),
    ],
)
def test_json_that_cannot_be_read(text, said):
    with pytest.raises(UsageError, match=f"a.jsonl, line 3: no JSON, .*{said}"):
        parse(text, Path("a.jsonl"), 3)


@pytest.mark.parametrize("end", ["jsonl", "csv"])
def test_records_with_half_a_character_or_a_stray_line_end(tmp_path, end):
    path = tmp_path / f"a.{end}"
    path.write_bytes({"jsonl": rb'{"text": "\ud800"}', "csv": b"text,label\na\rb,c\n"}[end])
    with pytest.raises(UsageError, match=f"a.{end}"):
        Labelled(str(path), "label", {"a": "b", "c": "d"}).read()


def test_files_without_records(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n")
    for read in (lambda: list(read_records(path)), HellaSwag(str(path)).read, Lambada(str(path)).read):
        with pytest.raises(UsageError, match=r"a\.jsonl holds no"):
            read()
    (tmp_path / "a.txt").write_text("\n")
    with pytest.raises(UsageError, match=r"a\.txt holds no passages"):
        Lambada(str(tmp_path / "a.txt")).read()


@pytest.mark.parametrize("endings", ["[]", '["one"]', '"text"', "[1, 2]", "null"])
def test_hellaswag_without_endings_to_choose_from(tmp_path, endings):
    path = tmp_path / "a.jsonl"
    path.write_text('{"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ' + endings + ', "label": 0}\n')
    with pytest.raises(UsageError, match=r"a\.jsonl: endings"):
        HellaSwag(str(path)).read()


def test_a_label_of_five_thousand_digits(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"c": "x", "e": ["y", "z"]}\n')
    (tmp_path / "a.lst").write_text("9" * 5000 + "\n")
    with pytest.raises(UsageError, match=r"a\.lst, line 1: label"):
        read_choices(tmp_path / "a.jsonl", "c", "e", labels=tmp_path / "a.lst")


def test_squad_nested_without_end(tmp_path):
    (tmp_path / "a.json").write_text('{"data":' * 50_000)
    with pytest.raises(UsageError, match=r"a\.json: no JSON"):
        read_squad(tmp_path / "a.json")


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
