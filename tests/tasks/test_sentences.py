import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.corpora.text import LONGEST
from retable.tasks.sentences import Example, SentenceTask
from retable.tasks.text import write_text

HEADER = "id\ttext\tlabel\n"


@pytest.fixture
def build(tmp_path):
    """Return a task with labels bad and good, and files with this content."""

    def builder(contents: dict[str, str | float | None] | None = None, **more) -> SentenceTask:
        contents = {"train": "1\ta\tgood\n", "validation": "2\tb\tbad\n"} | (contents or {})
        files: dict = {}
        for split, content in contents.items():
            files[split] = content
            if isinstance(content, str):
                files[split] = str(tmp_path / f"{split}.tsv")
                text = content if content.startswith("id\t") else HEADER + content
                (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8", newline="")
        settings = {"sentences": ["text"], "label": "label", "labels": ["bad", "good"], "metrics": ["accuracy"]}
        return SentenceTask("mine", files, **(settings | more))

    return builder


def test_sentences_and_labels_are_read_from_their_columns(build, tmp_path):
    task = build({"train": '1\t "a  \xa0b \tgood\n2\t\u2028é\t bad\n'})
    assert task.examples("train") == [Example(('"a b',), 1), Example(("é",), 0)]
    assert task.splits == ["train", "validation"]
    assert [path.name for path in task.inputs] == ["train.tsv", "validation.tsv"]
    task = build(sentences=["text", "id"])
    assert task.examples("train") == [Example(("a", "1"), 1)]
    task = build({"validation": "id\ttext\tscore\n1\tx\tgood\n"}, label=["score", "label"])
    assert task.examples("train") == [Example(("a",), 1)] and task.examples("validation") == [Example(("x",), 1)]
    task = build({"train": "1\ta\t-\n2\tb\tgood\n"}, labels={"bad": "bad", "good": "good", "-": None})
    assert task.examples("train") == [Example(("b",), 1)]
    (tmp_path / "plain.csv").write_text('good,"a, b"\n')
    file = {"path": str(tmp_path / "plain.csv"), "columns": ["label", "text"], "skip_incomplete": False}
    assert build({"test": file}).examples("test") == [Example(("a, b",), 1)]
    assert build({"test": None}).splits == ["train", "validation"]


def test_the_classes_may_be_the_labels_in_the_training_file(build):
    rows = ["1\ta\tso-so\n", "2\tb\t bad\n", "3\tc\tgood\n"] * 2
    task = build({"train": "".join(rows)}, labels="all")
    assert task.examples("train")[:3] == [Example(("a",), 2), Example(("b",), 0), Example(("c",), 1)]
    assert task.learnt() == {"labels": ["bad", "good", "so-so"]}
    elsewhere = build({"train": {"path": "nowhere.tsv"}}, labels="all")
    elsewhere.recall(task.learnt())  # as in a trained cell: the training file is not read
    assert elsewhere.labels.names == ["bad", "good", "so-so"]
    assert build().learnt() == {}
    with pytest.raises(UsageError, match=r"train.tsv: 6 rows have 6 different values in column 'id', too many for lab"):
        build({"train": "".join(f"{i}\ta\tgood\n" for i in range(6))}, labels="all", label="id").examples("train")
    with pytest.raises(UsageError, match=r"train.tsv has no column 'gold'; set .*: 'id', 'text', 'label'"):
        build(labels="all", label="gold").examples("train")


@pytest.mark.parametrize(("split", "row", "message"), [
    ("train", "1\ta\t\n", "line 2 has an empty 'label'; write a label, or remove the row$"),
    ("validation", "1\ta\t \n", "line 2 has an empty 'label'; write a label, or remove the row$"),
    ("train", "", "has no examples; the train split needs one or more$"),
    *[(split, "1\ta\tworse\n", r"line 2: label 'worse' does not occur in the training file, \S+train.tsv, which has "
       "'bad', 'good'; correct the label, remove the row, or add rows with this label to the training file$")
      for split in ("validation", "test")],
])  # fmt: skip
def test_what_is_wrong_with_labels_of_the_file_is_said(build, tmp_path, split, row, message):
    rows = "8\tb\tgood\n9\tc\tbad\n" * 2
    task = build({"train": rows, split: row + rows if row else ""}, labels="all")
    with pytest.raises(UsageError, match=rf"^{tmp_path / split}.tsv,? {message}"):
        task.examples(split)
    assert build({"validation": "1\ta\t\n"}, labels=["good", ""]).examples("validation") == [Example(("a",), 1)]


def test_text_that_is_not_a_label_is_shown_as_such(build):
    task = build({"train": "1\ta\tno\n2\tb\tyes\n" * 2}, labels="all")
    assert [task.shown(place) for place in (0, 1, 2)] == ["'no'", "'yes'", "a text that is not a label"]
    scored = build(labels=None, scores=[0, 5], metrics=["pearson"])
    assert [scored.shown(2.5), scored.shown(-1)] == ["2.5", "a text that is not a label"]


def test_a_test_set_may_have_no_labels(build):
    task = build({"test": "id\ttext\n7\tc d\n", "test_other": "9\te\tbad\n", "validation_other": "9\tf\tgood\n"})
    assert task.splits == ["train", "validation", "test", "test_other", "validation_other"]
    assert task.examples("test") == [Example(("c d",), None)]
    assert task.examples("test_other") == [Example(("e",), 0)]
    with pytest.raises(UsageError, match=r"validation.tsv has no column 'label'; set .*: 'id', 'text'"):
        build({"validation": "id\ttext\n7\tc d\n"}).examples("validation")


def test_scores(build):
    task = build({"train": "1\ta\t4.5\n"}, labels=None, scores=[0, 5], metrics=["pearson"])
    assert task.examples("train") == [Example(("a",), 4.5)]
    with pytest.raises(UsageError, match=r"validation.tsv, line 2: score 'bad' is not a number from 0 to 5"):
        task.examples("validation")


def test_a_prompt_names_the_columns_in_its_own_order(build):
    pair, example = {"sentences": ["a", "b"]}, Example(("one", "two"), None)
    assert [*build(**pair).named(example).items()] == [("a", "one"), ("b", "two")]
    assert [*build(**pair, prompt={"b": "x", "a": "y"}).named(example).items()] == [("x", "two"), ("y", "one")]


def test_validation_may_be_a_share_of_the_training_examples(build):
    task = build({"train": "".join(f"{i}\tt{i}\tgood\n" for i in range(25)), "validation": 0.1})
    held_out = [e.sentences[0] for e in task.examples("validation")]
    rest = [e.sentences[0] for e in task.examples("train")]
    assert len(held_out) == 2 and sorted([*rest, *held_out]) == sorted(f"t{i}" for i in range(25))
    assert task.splits == ["train", "validation"] and len(task.inputs) == 1
    with pytest.raises(UsageError, match=r"task.files.validation=0.1 has no examples"):
        build({"validation": 0.1}).examples("validation")


@pytest.mark.parametrize("period", [2, 3, 4, 10])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_share_has_its_part_of_each_class_in_whatever_order_the_rows_stand(build, period, share):
    rows = [(f"t{i}", "good" if i % period == 0 else "bad") for i in range(120)]
    text = "".join(f"{i}\t{word}\t{label}\n" for i, (word, label) in enumerate(rows))
    task = build({"train": text, "validation": share})
    held_out = task.examples("validation")
    for place, label in enumerate(("bad", "good")):
        n = sum(each == label for _, each in rows)
        assert abs(sum(example.label == place for example in held_out) - share * n) <= 1, label
    steps = np.diff([int(example.sentences[0][1:]) for example in held_out])
    assert len({*steps.tolist()}) > 2  # drawn at random, not at equal steps
    again = build({"train": text, "validation": share}).examples("validation")
    assert again == held_out


@pytest.mark.parametrize(("train", "settings", "message"), [
    *(("", labels, r"has no examples; the train split needs one or more") for labels in ({}, {"labels": "all"})),
    ("1\ta\tgood\n2\tb\tfair\n", {}, r"line 3: label 'fair' is not one of 'bad', 'good'"),
    ("1\ta\tgood\n2\tb\n", {}, "line 3: expects 3 fields but got 2"),
    ("1\ta\tgood\n", {"sentences": ["line"]}, "no column 'line'; set task.sentences .*: 'id', 'text', 'label'"),
    ("1\ta\tgood\n", {"label": "gold"}, "no column 'gold'; set .*: 'id', 'text', 'label'"),
    ("id\t\n", {"label": "gold"}, "no column 'text'; set .*: 'id', ''"),
    ("1\ta\tgood\n", {"form": {"delimeter": ","}},
     "unknown setting task.form.delimeter; write one of columns, delimiter"),
])  # fmt: skip
def test_what_is_wrong_with_the_examples_is_said(build, train, settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        build({"train": train}, **settings).examples("train")
    assert "train.tsv" in str(caught.value) or "task.form" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sentences", [["text"], ["id", "text"]])
def test_a_text_that_no_model_can_read_at_once_is_named_by_its_row(build, tmp_path, sentences):
    rows = [f"1\t{'a ' * LONGEST}\tgood\n", f"2\t{'a ' * (LONGEST + 1)}\tgood\n"]
    assert len(build({"train": rows[0]}, sentences=sentences).examples("train")) == 1
    message = f"^{tmp_path / 'train.tsv'}, line 3: the text has {LONGEST + 1} words; write {LONGEST} or fewer"
    with pytest.raises(UsageError, match=message):
        build({"train": "".join(rows)}, sentences=sentences).examples("train")


def test_missing_files_and_values_are_named(build, tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": "good"}\n{"text": null, "label": "bad"}\n{"text": "c"}\n')
    task = build({"train": {"path": str(tmp_path / "a.jsonl")}})
    with pytest.raises(UsageError, match=r"a.jsonl, line 2 has no 'text'"):
        task.examples("train")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"nowhere.tsv does not exist; set RETABLE_DATA"):
        build({"test": {"path": "nowhere.tsv"}}).examples("test")
    with pytest.raises(UsageError, match=r"stage prepare makes it"):
        build({"test": {"path": "outputs/prepare/grammar/sentiment/test.tsv"}}).examples("test")


@pytest.mark.parametrize(("settings", "message"), [
    ({"sentences": []}, r"task.sentences=\[\] has 0 columns; write one or two"),
    ({"sentences": ["a", "b", "c"]}, "has 3 columns"),
    ({"scores": [0, 5]}, "classes or scores"),
    ({"labels": None}, "classes or scores"),
    ({"labels": "all", "metrics": ["f1"]}, r"task.metrics=\['f1'\]: f1 needs two labels.* write, .*task.labels=\["),
    ({"labels": ["a", "b", "c"], "metrics": ["f1"]}, r"task.metrics=\['f1'\]: f1 needs two labels"),
    ({"labels": None, "scores": [0, 5], "metrics": ["f1"]}, "do not fit the labels; write one or more of pearson, "),
    ({"prompt": {"a": "x"}}, r"task.prompt has names for \['a'\]; write a name for each of \['text'\]"),
    ({"contents": {"train": None}}, "write task.files.train=FILE"),
    ({"contents": {"validation": 1.5}}, r"task.files.validation=1.5 is not a share of the training examples; write"),
    ({"contents": {"validation": None}}, "write task.files.validation=FILE"),
])  # fmt: skip
def test_a_task_that_cannot_be_is_refused(build, settings, message):
    with pytest.raises(UsageError, match=message):
        build(**settings)


def test_the_sentences_of_tasks_are_a_corpus(build, tmp_path):
    one = build({"train": "1\ta b\tgood\n2\t \tbad\n", "validation": "3\tc\tbad\n", "test": "id\ttext\n4\td e f\n"})
    (tmp_path / "p.tsv").write_text("x\ty\tlabel\nu\tv w\tgood\n")
    two = SentenceTask(
        "two",
        {"train": str(tmp_path / "p.tsv"), "validation": str(tmp_path / "p.tsv")},
        sentences=["x", "y"], label="label", metrics=["accuracy"], labels=["good"],
    )  # fmt: skip
    counts = write_text(tmp_path, {"one": one, "two": two})
    texts = {split: (tmp_path / f"{split}.txt").read_text() for split in ("train", "validation", "test")}
    assert texts == {"train": "a b\nu\nv w\n", "validation": "c\nu\nv w\n", "test": "d e f\n"}
    assert counts == {
        "train/lines": 3, "train/words": 5, "validation/lines": 3, "validation/words": 4, "test/lines": 1,
        "test/words": 3,
    }  # fmt: skip
    write_text(tmp_path, {"two": two})
    assert (tmp_path / "test.txt").read_text() == "u\nv w\n"  # validation again, if a task has no test split


def test_each_example_is_tested_in_one_fold_of_equal_size_and_classes(tmp_path):
    """There are files of two classes, of 9 and 16 lines. For early stopping, a part of the other folds is held out."""
    for name, n in (("bad", 9), ("good", 16)):
        (tmp_path / name).write_text("".join(f"{name}{i} \n" for i in range(n)) + " \n\n")
    files = {"train": {"by_class": {name: str(tmp_path / name) for name in ("bad", "good")}}, "validation": 0.2}
    column = {"sentences": ["sentence"], "label": "label", "labels": ["bad", "good"], "metrics": ["accuracy"]}

    def folds(seed: int):
        return SentenceTask("mine", files, **column, folds=5, seed=seed).folds()

    task = folds(1)[0].task
    whole = task._read_examples("train")
    assert [whole[0], whole[-1]] == [Example(("bad0",), 0), Example(("good15",), 1)]
    assert [path.name for path in task.inputs] == ["bad", "good"] and task.measured == ["test"]
    for fold, units in folds(1):
        train, held_out, test = (fold.examples(split) for split in ("train", "validation", "test"))
        assert test == [whole[i] for i in units] and len(held_out) == 4
        assert sorted([*train, *held_out, *test]) == sorted(whole)
        assert len(test) == 5 and sum(each.label == 0 for each in test) in (1, 2)
    assert sorted(i for fold in folds(1) for i in fold.units) == [*range(25)]
    assert [fold.units for fold in folds(1)] == [fold.units for fold in folds(1)]
    assert [fold.units for fold in folds(1)] != [fold.units for fold in folds(2)]
    with pytest.raises(UsageError, match=r"task.folds=5 makes test sets only from files.train; write task.files.test"):
        SentenceTask("mine", {**files, "test": "test.tsv"}, **column, folds=5)
