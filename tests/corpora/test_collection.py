import sys
from types import SimpleNamespace

import pytest

from retable.core.errors import UsageError
from retable.corpora.collection import write_collection
from retable.corpora.hub import hub_texts
from retable.corpora.text import read_units

PARTS = {"train": "train_10M/*.train", "validation": "dev/*.dev", "test": "test/*.test"}
FILES = {
    "train_10M/b.train": "the  second\tfile\n", "train_10M/a.train": "a first line\n\n\nand another \n",
    "train_10M/a.other": "not this one\n", "dev/a.dev": "one\n", "test/a.test": "two\n\nthree\n",
}  # fmt: skip


@pytest.fixture
def source(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def written(folder, split: str) -> str:
    return (folder / f"{split}.txt").read_text(encoding="utf-8")


def test_files_follow_each_other_by_name_and_part_documents_as_blank_lines_do(source, tmp_path):
    counts = write_collection(tmp_path, str(source), **PARTS)
    assert written(tmp_path, "train") == "a first line\nand another\nthe second file\n"
    assert written(tmp_path, "test") == "two\nthree\n"
    assert counts == {"train/lines": 3, "train/words": 8, "validation/lines": 1, "validation/words": 1,
                      "test/lines": 2, "test/words": 2}  # fmt: skip
    write_collection(tmp_path, str(source), **PARTS, documents=True)
    assert written(tmp_path, "train") == "a first line\n\nand another\n\nthe second file\n\n"
    assert list(read_units(tmp_path / "test.txt", "document")) == [["two"], ["three"]]


def test_from_the_hub_a_text_is_a_document(tmp_path, monkeypatch):
    asked = []

    def load_dataset(name, *configuration, split):
        asked.append((name, *configuration, split))
        return {"text": [f"{split} one\n\ntwo", "three"]}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    parts = {"train": "train[2:]", "validation": "train[:1]", "test": "train[1:2]"}
    counts = write_collection(tmp_path, "hub:somebody/web", **parts, documents=True)
    assert asked == [("somebody/web", split) for split in parts.values()]
    assert written(tmp_path, "train") == "train[2:] one\n\ntwo\n\nthree\n\n"
    assert counts["train/words"] == 4
    with pytest.raises(UsageError, match="hub:wikitext has no owner; write hub:OWNER/wikitext"):
        hub_texts("wikitext", "train")


@pytest.mark.parametrize(("pattern", "message"), [
    ("train_100M/*.train", r"has no file train_100M/\*.train; set RETABLE_DATA"),
    ("blank/*.train", r"blank/\*.train in .* has no words; the train split"),
    ("", "'' is not a file pattern relative to .*; write, for example,"),
    ("/texts/*.train", "'/texts/.*' is not a file pattern relative to"),
])  # fmt: skip
def test_what_is_no_pattern_of_files_with_words_is_refused(source, pattern, message):
    (source / "blank").mkdir()
    (source / "blank/a.train").write_text(" \n\n")
    with pytest.raises(UsageError, match=message):
        write_collection(source, str(source), **PARTS | {"train": pattern})
