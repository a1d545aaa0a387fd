import json
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora.choice_files import ChoiceFiles
from retable.corpora.multiple_choice import Choice

NAMES = {"context": "ctx", "endings": "endings", "label": "label"}


def choices(n: int, endings: int = 3) -> list[Choice]:
    """Return two examples per context."""
    return [Choice(f"context {i // 2}", [f"ending {i} {k}" for k in range(endings)], i % endings) for i in range(n)]


def write(path: Path, rows: list[Choice]) -> str:
    fields = ({"ctx": row.context, "endings": row.endings, "label": row.label} for row in rows)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in fields), encoding="utf-8")
    return str(path)


def test_a_file_a_split(tmp_path):
    rows = {"train": choices(6), "validation": choices(4, 2), "test": choices(2, 4)}
    paths = {split: write(tmp_path / f"{split}.jsonl", each) for split, each in rows.items()}
    files = ChoiceFiles(**paths, **NAMES)
    assert files.splits() == rows and [*files.splits()] == ["train", "validation", "test"]
    assert files.inputs == [tmp_path / f"{split}.jsonl" for split in rows]


def test_held_out_examples_are_held_out_with_all_of_their_context(tmp_path):
    train, test = write(tmp_path / "train.jsonl", choices(40)), write(tmp_path / "test.jsonl", choices(3))
    files = ChoiceFiles(train, test, held_out=7, **NAMES)
    splits = files.splits()
    assert sorted(splits["train"] + splits["validation"]) == sorted(choices(40)) and splits["test"] == choices(3)
    trained, held = ({row.context for row in splits[split]} for split in ("train", "validation"))
    assert not trained & held and 4 <= len(held) <= 7
    assert splits == ChoiceFiles(train, test, held_out=7, **NAMES).splits()
    with pytest.raises(UsageError, match=r"choices.held_out=40 leaves one split empty: there are 40 examples in"):
        ChoiceFiles(train, test, held_out=40, **NAMES).splits()


def test_labels_of_their_own_files(tmp_path):
    for split, labels in (("train", [0, 1, 1, 0]), ("test", [1])):
        rows = [{"goal": f"{split} {i}", "sol1": f"a{i}", "sol2": f"b{i}"} for i in range(len(labels))]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        (tmp_path / f"{split}.lst").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    paths = [str(tmp_path / f"{split}.jsonl") for split in ("train", "test")]
    labels = {split: str(tmp_path / f"{split}.lst") for split in ("train", "test")}
    files = ChoiceFiles(*paths, "goal", ["sol1", "sol2"], held_out=1, labels=labels)
    splits = files.splits()
    assert splits["test"] == [Choice("test 0", ["a0", "b0"], 1)]
    assert sorted(row.label for row in splits["train"] + splits["validation"]) == [0, 0, 1, 1]
    assert len(splits["validation"]) == 1 and len(files.inputs) == 4
    with pytest.raises(UsageError, match=r"correct endings are missing: .*label to a field, or .*labels.* train, test"):
        ChoiceFiles(*paths, "goal", ["sol1", "sol2"], held_out=1, labels={"train": labels["train"]})
    with pytest.raises(UsageError, match=r"task\.choices\.labels: unknown split tset; write one of train, test"):
        ChoiceFiles(*paths, "goal", ["sol1", "sol2"], "label", held_out=1, labels={"tset": "nowhere"})


def test_validation_is_either_a_file_or_held_out():
    for both in ({}, {"validation": "validation.jsonl", "held_out": 2}):
        with pytest.raises(UsageError, match=r"set either task.choices.validation to a file, or .*held_out"):
            ChoiceFiles("train.jsonl", "test.jsonl", **NAMES, **both)
