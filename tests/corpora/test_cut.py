import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.corpora import cut
from retable.corpora.cut import write_cut, write_shuffled_lines
from retable.corpora.text import SPLITS, read_lines, read_units, without_blank_lines, write_corpus
from retable.data.encode import write_tokens
from retable.tokenizers import character

TEXT = "First:\nspeak,  speak.\n\nAll:\nNo — more.\n\n"


def texts(folder) -> list[str]:
    return [(folder / f"{split}.txt").read_bytes().decode() for split in SPLITS]


def write(folder, text: str, train: float, test: float, blank_lines: bool = True) -> dict[str, float]:
    (folder / "source").write_bytes(text.encode())
    return write_cut(folder, str(folder / "source"), train, test, blank_lines=blank_lines)


@pytest.mark.parametrize("percent", range(20, 80, 7))
def test_the_parts_are_the_text(tmp_path, percent):
    counts = write(tmp_path, TEXT, percent / 100, 0.2)
    parts = texts(tmp_path)
    assert all(part.endswith("\n") for part in parts)
    # The parts together have only one more character: a line end at the cut.
    whole, rest = "", TEXT
    for part in parts:
        part = part if rest.startswith(part) else part[:-1]
        assert part and rest.startswith(part)
        whole, rest = whole + part, rest.removeprefix(part)
    assert whole == TEXT
    assert counts["test/characters"] == len(parts[2])
    assert abs(len(parts[0].encode()) - percent / 100 * len(TEXT.encode())) <= 3


def test_no_third_part_repeats_the_second(tmp_path):
    counts = write(tmp_path, "0123456789" * 10, 0.9, 0.0)
    train, validation, test = texts(tmp_path)
    assert (train, validation) == ("0123456789" * 9 + "\n", "0123456789\n") and test == validation
    assert counts["validation/characters"] == counts["test/characters"] == 11


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 1000])
def test_the_counts_do_not_hang_on_what_is_read_at_a_time(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(cut, "CHUNK", chunk)
    counts = write(tmp_path, TEXT, 0.6, 0.2)
    for split, part in zip(SPLITS, texts(tmp_path), strict=True):
        said = [counts[f"{split}/{name}"] for name in ("characters", "lines", "words")]
        assert said == [len(part), part.count("\n"), len(part.split())]
    (tmp_path / "latin").write_bytes("né — ".encode() * 9 + b"\xe9\n")
    with pytest.raises(UsageError, match="byte 73 is not UTF-8"):
        write_cut(tmp_path, str(tmp_path / "latin"), 0.5, 0.2)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("unit", ["line", "document"])
@pytest.mark.parametrize("blank", ["", " ", "\t \t", "\u00a0", "\r", "\u3000\n\n \x85", "\n"])
def test_blank_lines_are_treated_as_by_the_other_writer(tmp_path, monkeypatch, chunk, unit, blank):
    """The same text in one file and in three files, as lines and as documents, with all kinds of blank lines."""
    monkeypatch.setattr(cut, "CHUNK", chunk)
    part = f"{blank}\n".join(["a  b\n", "— c\nd\n", " e\n", ""])
    source = tmp_path / "source"
    source.write_bytes(3 * part.encode())
    (tmp_path / "part").write_bytes(part.encode())
    counts = write_cut(tmp_path, str(source), 1 / 3 + 1e-9, 1 / 3 + 1e-9, unit)
    ours = [[[line.split() for line in lines] for lines in read_units(tmp_path / f"{s}.txt", unit)] for s in SPLITS]
    sizes = [len(text) for text in texts(tmp_path)]
    assert [counts[f"{split}/characters"] for split in SPLITS] == sizes
    write_corpus(tmp_path, *[str(tmp_path / "part")] * 3, documents=unit == "document")
    theirs = [[[line.split() for line in lines] for lines in read_units(tmp_path / f"{s}.txt", unit)] for s in SPLITS]
    assert ours == theirs and len(ours[0]) == (4 if unit == "line" else 3)


@given(st.lists(st.sampled_from(["\n", " ", "a", "\r", "\t", "b", "\u00a0"])), st.data())
def test_a_text_without_its_blank_lines_is_the_same_in_any_parts(letters, data):
    text = "".join(letters)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    parts = [text[a:b] for a, b in pairwise([0, *places, len(text)])]
    lines = text.split("\n")
    whole = [f"{line}\n" for line in lines[:-1] if line.strip()] + [lines[-1] if lines[-1].strip() else ""]
    assert "".join(without_blank_lines(parts)) == "".join(whole)


def test_a_file_is_never_in_memory_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(cut, "CHUNK", 10_000)
    source = tmp_path / "source"
    source.write_bytes(b"a word and another\n" * 30_000)
    tracemalloc.start()
    write_cut(tmp_path, str(source), 0.9, 0.05)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < source.stat().st_size / 2


@pytest.mark.real
def test_tiny_shakespeare_is_cut_as_nanogpt_cuts_it(tmp_path, data_dir):
    source = data_dir / "tinyshakespeare" / "tinyshakespeare.txt"
    counts = write_cut(tmp_path, str(source), 0.9, 0.0, blank_lines=True)
    text = source.read_text(encoding="utf-8")
    cut = int(len(text) * 0.9)
    train, validation, _ = texts(tmp_path)
    assert (train, validation) == (text[:cut] + "\n", text[cut:])  # the cut is inside a line
    assert (counts["train/characters"] - 1, counts["validation/characters"]) == (1_003_854, 111_540)
    tokenizer = character.train(read_lines(tmp_path / "train.txt"))
    units = read_units(tmp_path / "validation.txt", "line")
    totals = write_tokens(tokenizer, units, False, tmp_path / "validation")
    assert totals["tokens"] == totals["bytes"] == 111_540
    assert tokenizer.vocab_size == 65 + 256 + 1  # nanoGPT's characters, bytes for other characters, and the boundary


def test_shuffled_lines_are_all_of_them_in_pythons_order(tmp_path):
    lines = [f"line {number}" for number in range(10)]
    (tmp_path / "source").write_text("\n\n".join(lines))
    counts = write_shuffled_lines(tmp_path, str(tmp_path / "source"), 0.6, 0.2, seed=42)
    random.seed(42)
    random.shuffle(lines)
    assert "".join(texts(tmp_path)).splitlines() == lines
    assert [counts[f"{split}/lines"] for split in SPLITS] == [6, 2, 2]
    with pytest.raises(UsageError, match=r"train=0\.8 and test=0\.2 of .* leave no line for validation"):
        write_shuffled_lines(tmp_path, str(tmp_path / "source"), 0.8, 0.2, seed=42)


@pytest.mark.real
def test_names_are_cut_as_makemore_cuts_them(tmp_path, data_dir):
    counts = write_shuffled_lines(tmp_path, str(data_dir / "names" / "names.txt"), 0.8, 0.1, seed=42)
    assert [counts[f"{split}/characters"] for split in SPLITS] == [182_625, 22_655, 22_866]  # examples of the notebook
    assert texts(tmp_path)[0].startswith("yuheng\ndiondre\nxav")


@pytest.mark.real
def test_characters_of_the_penn_treebank_are_mikolovs(data_dir):
    """corpus=ptb tokenizer=character gives the text of the published bits per character: 5017k, 393k and 442k
    characters.
    """
    sizes = [
        sum(len(" ".join(line.split())) + 1 for line in read_lines(data_dir / "ptb" / f"ptb.{split}.txt"))
        for split in ("train", "valid", "test")
    ]
    assert sizes == [5_017_482, 393_042, 442_423]
