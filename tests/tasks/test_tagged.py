from functools import partial
from types import SimpleNamespace

import pytest

from retable.corpora.columns import TaggedSentence
from retable.corpora.conllu import read_conllu
from retable.errors import UsageError
from retable.tasks.tagged import TaggedFiles, TaggedText


@pytest.fixture
def paths(tmp_path):
    for split, n in (("train", 7), ("test", 2)):
        text = "".join(f"{split}{i} X B-NP\nend Y O\n\n" for i in range(n))
        (tmp_path / f"{split}.txt").write_text(text)
    return {split: str(tmp_path / f"{split}.txt") for split in ("train", "test")}


def test_sentences_are_held_out_of_training(paths):
    task = TaggedFiles(**paths, held_out=3)
    splits = task.splits()
    assert list(splits) == ["train", "validation", "test"] and len(task.inputs) == 2
    assert [len(rows) for rows in splits.values()] == [4, 3, 2]
    first = [sentence.words[0] for split in ("train", "validation") for sentence in splits[split]]
    assert sorted(first) == [f"train{i}" for i in range(7)]
    assert splits["test"][0] == TaggedSentence(["test0", "end"], ["B-NP", "O"])
    assert TaggedFiles(**paths, held_out=3).splits() == splits


def test_a_file_for_validation(paths):
    task = TaggedFiles(**paths, validation=paths["test"])
    assert task.splits()["validation"] == task.splits()["test"] and len(task.splits()["train"]) == 7
    assert len(task.inputs) == 3


@pytest.mark.parametrize("settings", [{}, {"held_out": 2, "validation": "some.txt"}])
def test_one_way_to_validate(paths, settings):
    with pytest.raises(UsageError, match="write either tagging"):
        TaggedFiles(**paths, **settings)


def test_something_has_to_be_left_to_train_on(paths):
    with pytest.raises(UsageError, match="held_out=7 leaves none of the 7 sentences"):
        TaggedFiles(**paths, held_out=7).splits()


def test_other_formats(tmp_path):
    row = "1\tdogs\tdog\tNOUN\tNNS\t_\t0\troot\t_\t_\n\n"
    path = tmp_path / "a.conllu"
    path.write_text(row)
    for tag, found in (("upos", "NOUN"), ("xpos", "NNS")):
        task = TaggedFiles(str(path), str(path), str(path), read=partial(read_conllu, tag=tag))
        assert task.splits()["test"] == [TaggedSentence(["dogs"], [found])]


def test_a_text_that_comes_with_labels():
    rows = {
        split: [SimpleNamespace(words=[split], labels={"x": ["1"], "y": ["2"]})]
        for split in ("train", "validation", "test")
    }
    text = SimpleNamespace(inputs=[], sentences=rows.__getitem__)
    assert TaggedText(text, "y").splits() == {split: [TaggedSentence([split], ["2"])] for split in rows}
