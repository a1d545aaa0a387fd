from retable.corpora.text import read_lines, read_units, write_corpus


def test_a_corpus_is_copied_a_sentence_a_line(tmp_path):
    raw = {"train": b" the  cat \r\n\n\tsat\xc2\xa0down\n", "validation": b"a", "test": b"b c\n \n\n"}
    for split, content in raw.items():
        (tmp_path / f"{split}.raw").write_bytes(content)
    counts = write_corpus(tmp_path, **{split: str(tmp_path / f"{split}.raw") for split in raw})
    written = {split: (tmp_path / f"{split}.txt").read_bytes() for split in raw}
    assert written == {"train": b"the cat\nsat down\n", "validation": b"a\n", "test": b"b c\n"}
    found = [(counts[f"{split}/lines"], counts[f"{split}/words"]) for split in raw]
    assert found == [(2, 4), (1, 1), (1, 2)] and len(counts) == 6


def test_units_are_lines_or_documents_which_keep_one_blank_line_each(tmp_path):
    source = tmp_path / "source.txt"
    source.write_text("\n\n= Title =\n a  b \n\n \n\nc\n\n")
    write_corpus(tmp_path, *[str(source)] * 3, documents=True)
    assert (tmp_path / "train.txt").read_text() == "= Title =\na b\n\nc\n\n"
    assert [*read_units(tmp_path / "train.txt", "document")] == [["= Title =", "a b"], ["c"]]
    assert [*read_units(tmp_path / "train.txt", "line")] == [["= Title ="], ["a b"], [""], ["c"], [""]]
    write_corpus(tmp_path, *[str(source)] * 3)
    assert (tmp_path / "train.txt").read_text() == "= Title =\na b\nc\n"


def test_marks_of_sentences_are_removed_from_the_ends_of_lines_alone(tmp_path):
    (tmp_path / "raw").write_text("<s> a <s> b </s>\n<s> </s>\nc <eos>\n\n<s><s> </s> d\n")
    counts = write_corpus(tmp_path, *[str(tmp_path / "raw")] * 3, strip=["<s>", "</s>", "<eos>"])
    assert (tmp_path / "train.txt").read_text() == "a <s> b\nc\n<s><s> </s> d\n"
    assert (counts["train/lines"], counts["train/words"]) == (3, 7)


def test_lines_end_at_line_feeds_alone_and_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("a\u2028b\x0c c\r\nd\x85e\n\nf".encode())
    assert [*read_lines(path)] == ["a\u2028b\x0c c", "d\x85e", "", "f"]
    path.write_bytes("\ufeffThe cat\n\ufeffsat\n".encode())
    for encoding, first in (("utf-8", "The cat"), ("UTF8", "The cat"), ("latin-1", "ï»¿The cat")):
        assert next(read_lines(path, encoding)) == first
    assert [*read_lines(path)][1] == "\ufeffsat"  # inside a file, the character is kept: it is not a byte-order mark
