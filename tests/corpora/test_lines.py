"""One rule for lines, blank lines, byte-order marks and names that occur twice, in every reader of users' files."""

import csv
import json
from itertools import product

import pytest

from retable.core.errors import UsageError
from retable.corpora.multiple_choice import read_choices
from retable.corpora.questions import Labelled
from retable.corpora.text import is_blank, lines_of, read_lines, read_units, write_corpus
from retable.data.summaries import sentences_of
from retable.evaluation.analogies import read_analogies
from retable.evaluation.similarity import read_pairs
from retable.tasks.table import read_table

LINES = ["the cat sat", "ein Bär", "a bird flew"]
WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False], ids=["with a last end", "without"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", *WIDE])
def test_lines_end_alike_in_every_encoding(tmp_path, end, last, encoding):
    text = end.join(LINES) + end * last
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    asked = "utf-8" if encoding == "utf-8-sig" else encoding
    assert [*read_lines(tmp_path / "a.txt", asked)] == LINES == lines_of(text)


def test_python_text_mode_agrees(tmp_path):
    """Of every short text of these characters; a CR inside a file with LF is white space there, not a line's end."""
    for letters in product("a\n\r", repeat=5):
        text = "".join(letters)
        if "\r" in text.replace("\r\n", "") and "\n" in text:
            continue
        (path := tmp_path / "a.txt").write_bytes(text.encode())
        with path.open(encoding="utf-8") as file:
            assert [*read_lines(path)] == [line.removesuffix("\n") for line in file], repr(text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", *WIDE])
def test_the_lines_of_a_text_are_the_same_in_every_encoding(tmp_path, encoding):
    """Of every short text of these characters; `\\u0a0d` has the bytes of line ends in UTF-16."""
    letters = "a\n\r" if encoding == "latin-1" else "a\n\r\u0a0d"
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    for n in range(1, 4):
        for text in map("".join, product(letters, repeat=n)):
            path.write_bytes(text.encode("utf-8"))
            other.write_bytes(text.encode(encoding))
            lines = [*read_lines(path)]
            assert [*read_lines(other, encoding.removesuffix("-sig"))] == lines == lines_of(text), repr(text)


def test_a_text_of_other_bytes_is_told_to_become_utf_8(tmp_path):
    (path := tmp_path / "a.txt").write_bytes("é".encode("utf-16"))
    with pytest.raises(UsageError, match=r"is not UTF-8.*iconv -t UTF-8"):
        [*read_lines(path)]
    path.write_bytes(b"abc")
    with pytest.raises(UsageError, match=r"is not UTF-16-LE .*convert the file to UTF-8"):
        [*read_lines(path, "utf-16-le")]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\xa0", "\u3000", " \t "])
def test_a_line_without_words_parts_documents_however_they_are_read(tmp_path, blank):
    assert is_blank(blank)
    text = "".join(f"a b\nc d\n{blank}\n" for _ in range(6))
    (path := tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert len([*read_units(path, "document")]) == 6
    counts = write_corpus(tmp_path, str(path), str(path), str(path), documents=True)
    assert len([*read_units(tmp_path / "train.txt", "document")]) == 6 and counts["train/lines"] == 12


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_line_feeds_end_a_sentence(mark):
    assert sentences_of(f"He came{mark}late. Then left\nhome") == ["He came late.", "Then left", "home"]


def test_a_byte_order_mark_is_no_part_of_words(tmp_path):
    (path := tmp_path / "a.txt").write_text("\ufeff: capital\na b c d\n", encoding="utf-8")
    assert read_analogies(path) == {"capital": [("a", "b", "c", "d")]}
    path.write_text("\ufeffcat dog 7.5\n", encoding="utf-8")
    assert read_pairs(path) == [("cat", "dog", 7.5)]
    assert lines_of("\ufeffa\r\nb\r\n") == ["a", "b"]


def test_names_that_occur_twice_are_refused(tmp_path):
    def file(name: str, text: str):
        (path := tmp_path / name).write_text(text, encoding="utf-8")
        return path

    csv_file, tsv = file("a.csv", "a,a\nx,1\n"), file("a.tsv", "label\tlabel\tsentence\n1\t0\tgood\n")
    lines = file("a.jsonl", '{"a": "x", "a": "1"}\n')
    with csv_file.open(encoding="utf-8") as opened:  # Python's reader takes the last in silence
        assert [*csv.DictReader(opened)] == [{"a": "1"}] and json.loads(lines.read_text()) == {"a": "1"}
    readers = [
        lambda: [*read_table(csv_file).rows], lambda: [*read_table(tsv).rows], lambda: [*read_table(lines).rows],
        lambda: read_table(file("b.tsv", "x\ty\n"), columns=["a", "a"]),
        lambda: Labelled(str(tsv), "label", {"0": "bad", "1": "good"}).read(),
        lambda: read_choices(csv_file, "a", "b"), lambda: read_choices(lines, "a", "b"),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(UsageError, match="occurs twice among"):
            read()
