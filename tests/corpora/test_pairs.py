import sys
from types import SimpleNamespace

import pytest

from retable.core.errors import UsageError
from retable.corpora.pairs import pair_splits, read_pairs, write_pairs

EN, DE = "A  Dog\tbarks .\r\ntwo\n", "Ein Hund bellt.\nzwei Übel\n"


@pytest.fixture
def files(tmp_path):
    """Return a parallel corpus with two lines per split, by the argument names of write_pairs."""
    paths = {}
    for split in ("train", "validation", "test"):
        for side, text in (("source", EN), ("target", DE)):
            path = tmp_path / f"{split}.{side}.raw"
            path.write_bytes(text.encode())
            paths[f"{split}_{side}"] = str(path)
    (tmp_path / "out").mkdir()
    return paths


def test_both_sides_are_copied_and_put_together(files, tmp_path):
    counts = write_pairs(tmp_path / "out", **files)
    written = {path.name: path.read_bytes().decode() for path in (tmp_path / "out").iterdir()}
    for split in ("train", "validation", "test"):
        assert written[f"{split}.source.txt"] == "A Dog barks .\ntwo\n"
        assert written[f"{split}.target.txt"] == "Ein Hund bellt.\nzwei Übel\n"
        assert written[f"{split}.txt"] == "A Dog barks .\nEin Hund bellt.\ntwo\nzwei Übel\n"
        assert [counts[f"{split}/{name}"] for name in ("pairs", "source_words", "target_words")] == [2, 5, 5]
    assert len(written) == len(counts) == 9
    assert read_pairs(tmp_path / "out", "test") == (["A Dog barks .", "two"], ["Ein Hund bellt.", "zwei Übel"])


def test_further_test_sets_are_not_for_the_tokenizer(files, tmp_path):
    more = {"test_2017_source": files["test_source"], "test_2017_target": files["test_target"]}
    counts = write_pairs(tmp_path / "out", lowercase=True, **files, **more)
    assert counts["test_2017/pairs"] == 2
    assert pair_splits(tmp_path / "out") == ["train", "validation", "test", "test_2017"]
    assert read_pairs(tmp_path / "out", "test_2017")[1] == ["ein hund bellt.", "zwei übel"]
    assert not (tmp_path / "out" / "test_2017.txt").exists()


@pytest.mark.parametrize(("broken", "content", "message"), [
    ("train_target", b"eins\n", r"train.target.raw ends after 1 lines, but .*train.source.raw has more"),
    ("train_source", b"one\n", r"train.source.raw ends after 1 lines, but .*train.target.raw has more"),
    ("test_source", b"one\n \t\n", r"test.source.raw, line 2 is empty"),
    ("validation_target", b"eins\nz\xfcrn\n", r"validation.target.raw, line 2: byte 2 .* not UTF-8 \(0xfc\)"),
    ("both", b"", r"test.source.raw has no words"),
    ("test_target", None, r"add corpus.write.test_target=FILE"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_place(files, tmp_path, broken, content, message):
    for side in ("test_source", "test_target") if broken == "both" else (broken,):
        if content is None:
            del files[side]
        else:
            (tmp_path / files[side]).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        write_pairs(tmp_path / "out", **files)
    (tmp_path / "train.txt").write_text("a\n")
    with pytest.raises(UsageError, match=r"no pairs of sentences for train; .* corpus=multi30k"):
        pair_splits(tmp_path)


@pytest.mark.real
def test_multi30k(data_dir, tmp_path):
    raw = data_dir / "multi30k" / "raw"
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    files = {f"{split}_{side}": str(raw / f"{name}.{language}") for split, name in names.items()
             for side, language in (("source", "en"), ("target", "de"))}  # fmt: skip
    counts = write_pairs(tmp_path, **files)
    assert [counts[f"{split}/pairs"] for split in names] == [29000, 1014, 1000]


class Spacy:
    """spaCy's interface, with a tokenizer that splits off the last character and keeps double spaces."""

    @staticmethod
    def blank(language):
        if language not in ("de", "en"):
            raise ImportError(language)
        return SimpleNamespace(tokenizer=lambda text: [
            SimpleNamespace(text=word or "\xa0", is_space=not word) for word in [*text[:-1].split(" "), text[-1]]
        ])  # fmt: skip


def test_words_of_spacy_are_split_before_the_case_is_lowered(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", Spacy)
    write_pairs(tmp_path / "out", lowercase=True, spacy=["en", "de"], joint=False, **files)
    sources, targets = read_pairs(tmp_path / "out", "train")
    assert sources[0].startswith("a ␣a0 dog") and sources[1] == "tw o"
    assert targets == ["ein hund bellt .", "zwei übe l"]
    assert (tmp_path / "out" / "train.txt").read_text("utf-8") == "ein hund bellt .\nzwei übe l\n"


def test_spacy_must_be_installed_and_know_both_languages(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", Spacy)
    for languages, message in ((["en"], "two languages"), (["en", "xx"], "no tokenizer for 'xx'")):
        with pytest.raises(UsageError, match=message):
            write_pairs(tmp_path / "out", spacy=languages, **files)
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[spacy\]'"):
        write_pairs(tmp_path / "out", spacy=["en", "de"], **files)
