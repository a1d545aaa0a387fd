import json

import pytest

from retable.core.errors import UsageError
from retable.corpora.squad import read_triples
from retable.models.span_rules import RightSpan
from retable.tasks.questions import QuestionFiles, QuestionTask, answers_of


@pytest.fixture
def paths(tmp_path):
    """Write ten training paragraphs with one to four questions, and two test triples in another format."""
    paragraphs = []
    for p in range(10):
        asked = {"question": "Which?", "answers": [{"text": str(p), "answer_start": 10}]}
        questions = [asked | {"id": f"{p}-{q}"} for q in range(1 + p % 4)]
        paragraphs.append({"context": f"Paragraph {p}.", "qas": questions})
    (tmp_path / "train.json").write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}]}))
    triple = {"context": "Another.", "question": "What?", "answer": "Another"}
    (tmp_path / "test.json").write_text(json.dumps([triple, triple]))
    return {"train": str(tmp_path / "train.json"), "test": str(tmp_path / "test.json"), "read_test": read_triples}


def test_paragraphs_are_held_out_whole(paths):
    task = QuestionFiles(**paths, held_out=3)
    splits = task.splits()
    assert list(splits) == ["train", "validation", "test"] and len(task.inputs) == 2
    contexts = {split: {question.context for question in rows} for split, rows in splits.items()}
    assert len(contexts["validation"]) == 3 and len(contexts["train"]) == 7
    assert not contexts["validation"] & contexts["train"]
    assert len(splits["train"]) + len(splits["validation"]) == sum(1 + p % 4 for p in range(10))
    assert [question.id for question in splits["test"]] == ["0", "1"]
    assert QuestionFiles(**paths, held_out=3).splits() == splits


def test_a_rule_answers_without_a_tokenizer(paths):
    task = QuestionTask(QuestionFiles(**paths, held_out=3))
    rule, examples = task.objective(RightSpan(), None, dropout=0.0), task.examples("test")
    assert answers_of(examples, task.predict(rule, task.encode(rule.model, None, examples))) == {
        "0": "Another", "1": "Another",
    }  # fmt: skip


def test_both_splits_need_paragraphs_and_files(paths):
    for held_out in (0, 10, -1):
        with pytest.raises(UsageError, match=rf"held_out={held_out} is out of range; write 1 to 9, as .*train.json"):
            QuestionFiles(**paths, held_out=held_out).splits()
    with pytest.raises(UsageError, match=r"nowhere\.json does not exist; set RETABLE_DATA"):
        QuestionFiles(**paths | {"test": "nowhere.json"}, held_out=3).splits()
