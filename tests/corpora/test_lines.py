"""Test that all readers of users' files treat lines, blank lines, byte-order marks and duplicate names alike."""

import csv
import json
from itertools import product

import pytest

from retable.core.errors import UsageError
from retable.corpora.cut import write_cut
from retable.corpora.multiple_choice import read_choices
from retable.corpora.questions import Labelled
from retable.corpora.scored_pairs import ScoredPairs
from retable.corpora.text import SPLITS, is_blank, lines_of, read_lines, read_units, write_corpus
from retable.corpora.text8 import read_text8
from retable.data.summaries import sentences_of
from retable.evaluation.analogies import read_analogies
from retable.evaluation.contextual_vectors import read_senses
from retable.evaluation.similarity import read_pairs
from retable.exchange.checkpoint import _read_json
from retable.models.arpa import read_arpa
from retable.models.vector_files import read_vectors
from retable.planning.conf import comment_of, read_yaml
from retable.tasks.table import read_table
from retable.tokenizers import pretrained

WORDS = json.dumps({
    "model": {"type": "WordLevel", "vocab": {"<eos>": 0, "<unk>": 1, "the": 2}, "unk_token": "<unk>"},
    "pre_tokenizer": {"type": "WhitespaceSplit"},
})  # fmt: skip
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
    """All short texts of these characters are tested. In a file with LF, CR is white space, not a line end."""
    for letters in product("a\n\r", repeat=5):
        text = "".join(letters)
        if "\r" in text.replace("\r\n", "") and "\n" in text:
            continue
        (path := tmp_path / "a.txt").write_bytes(text.encode())
        with path.open(encoding="utf-8") as file:
            assert [*read_lines(path)] == [line.removesuffix("\n") for line in file], repr(text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", *WIDE])
def test_the_lines_of_a_text_are_the_same_in_every_encoding(tmp_path, encoding):
    """All short texts of these characters are tested; in UTF-16, `\u0a0d` has the bytes of line ends."""
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


SENSES = "word\tsentence\tposition\tsense\n" + "".join(f"bat\ta bat\t1\t{i % 2}\n" for i in range(4))
ARPA = "\\data\\\nngram 1=2\n\n\\1-grams:\n-0.3\t</s>\n-0.3\ta\n\n\\end\\\n"
WORDPIECE = {
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n",
    "tokenizer_config.json": '{"do_lower_case": false}',
}
BPE = {"vocab.json": '{"<|endoftext|>": 0, "a": 1, "b": 2, "ab": 3}', "merges.txt": "#version: 0.2\na b\n"}


def cut_in_three(path):
    counts = write_cut(path.parent, str(path), 0.5, 0.2)
    return counts, [(path.parent / f"{split}.txt").read_bytes() for split in SPLITS]


def tokens_of(path):
    return pretrained.read_tokenizer(path.parent).encode("the Cat ab")


# Every reader of a text that does not get its lines from `read_lines`; readers of tokenizers open some files
# themselves.
READERS = {
    "analogies": ({"a.txt": ": capital\na b c d\n"}, read_analogies),
    "similarity": ({"a.txt": "cat dog 7.5\n"}, read_pairs),
    "scored pairs": (
        {"a.tsv": "part\tscore\tsentence1\tsentence2\np\t1\ta\tb\n"},
        lambda path: ScoredPairs(str(path.parent)).read(),
    ),
    "senses": ({"a.tsv": SENSES}, read_senses),
    "word vectors": ({"a.txt": "2 1\nthe 0.5\na 1\n"}, lambda path: [each[:] for each in read_vectors(path)]),
    "arpa": ({"a.arpa": ARPA}, lambda path: read_arpa(path).log_prob(["a"])),
    "arpa without a title": ({"a.arpa": ARPA.partition("\n")[2]}, lambda path: read_arpa(path).log_prob(["a"])),
    "text8": ({"text8": " the cat sees a bird" * 9}, lambda path: read_text8(str(path))),
    "a cut text": ({"a.txt": "First:\nspeak, all of you\n" * 9}, cut_in_three),
    "word pieces": (WORDPIECE, tokens_of),
    "byte pairs": (BPE, tokens_of),
    "a tokenizer": ({"tokenizer.json": WORDS}, tokens_of),
    "a checkpoint": ({"config.json": '{"n_embd": 3}'}, _read_json),
    "a comment": ({"a.yaml": "# Two words.\na: 1\n"}, comment_of),
    "settings": ({"a.yaml": "a: 1\n"}, read_yaml),
}


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path, name):
    files, read = READERS[name]
    paths = [tmp_path / each for each in files]
    texts = []
    for mark in ("", "\ufeff"):
        for path, text in zip(paths, files.values(), strict=True):
            path.write_text(mark + text, encoding="utf-8")
        texts.append(read(paths[0]))
    assert repr(texts[0]) == repr(texts[1])
    assert lines_of("\ufeffa\r\nb\r\n") == ["a", "b"]


def test_names_that_occur_twice_are_refused(tmp_path):
    def file(name: str, text: str):
        (path := tmp_path / name).write_text(text, encoding="utf-8")
        return path

    csv_file, tsv = file("a.csv", "a,a\nx,1\n"), file("a.tsv", "label\tlabel\tsentence\n1\t0\tgood\n")
    lines = file("a.jsonl", '{"a": "x", "a": "1"}\n')
    with csv_file.open(encoding="utf-8") as opened:  # Python's reader uses the last of two equal names without an error
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
